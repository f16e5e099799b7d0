"""One model on four ranks, each the simulated engine in a unit such as the daemon makes: all stand, or all fall."""

import asyncio
import json
import signal
import socket
from dataclasses import dataclass, replace

from core.http.client import HttpClient
from core.runtime import Authority
from daemon.runtimes.unit import Account, Surroundings, build_unit
from engines.adapter import EngineSpec, NodeFacts, Rendezvous
from engines.registry import get_adapter
from tests.contract.lab import Lab
from units.backend import ActiveState, UnitStatus
from units.model import RestartPolicy, RestartWhen, ServiceUnit, UnitRecord

RANKS = 4
NEVER = RestartPolicy(when=RestartWhen.NO)
SOON = RestartPolicy(when=RestartWhen.ALWAYS, delay_s=0.1, limit_burst=20)
KEY = "sk-test-0123456789"
REQUEST = json.dumps({"model": "one", "messages": [{"role": "user", "content": "hello"}]}).encode()


@dataclass(frozen=True, slots=True)
class Ranks:
    """The units, by rank, and the head's port."""

    units: tuple[ServiceUnit, ...]
    port: int

    @property
    def head(self) -> str:
        return self.units[0].name


def _ranks(lab: Lab, restart: RestartPolicy, **options: float) -> Ranks:
    ports, place = [_free_port() for _ in range(RANKS)], _free_port()
    units = [
        _unit(lab, Rendezvous(rank, RANKS, "127.0.0.1", place), ports[rank], restart, options) for rank in range(RANKS)
    ]
    return Ranks(tuple(units), ports[0])


def _unit(lab: Lab, meeting: Rendezvous, port: int, restart: RestartPolicy, options: dict[str, float]) -> ServiceUnit:
    """As the daemon makes it, but under a name of the lab's and with its patience."""
    name = lab.unit(("/bin/true",)).record.runtime_id
    home, key = lab.file("home"), lab.file("key")
    home.mkdir()
    key.write_text(KEY)
    spec = EngineSpec(name, "sim", ("one",), port, home=home, options=options, rendezvous=meeting)
    command = get_adapter("sim").build_command(spec, None, NodeFacts(cpu_count=2, memory_total_mib=4096))
    record = UnitRecord(runtime_id=name, engine="sim", ports=(port,), authority=Authority(owner="lab"))
    unit = build_unit(spec, command, record, Surroundings(Account(), key, start_deadline_s=30.0))
    return replace(unit, restart=restart, timeout_stop_s=5.0)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def _start(lab: Lab, ranks: Ranks, *which: int) -> None:
    await lab.install(*ranks.units)
    await asyncio.gather(*(lab.backend.start(ranks.units[rank].name) for rank in which))


async def _answers(ranks: Ranks) -> int:
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    async with HttpClient() as http:
        url = f"http://127.0.0.1:{ranks.port}/v1/chat/completions"
        return (await http.fetch("POST", url, headers=headers, body=REQUEST, timeout_s=30.0)).status


def _has_come_back(status: UnitStatus) -> bool:
    return status.restarts >= 1 and status.active_state is ActiveState.ACTIVE


async def _until_served(lab: Lab, ranks: Ranks, times: int) -> None:
    """Until the head has begun to serve so many times."""
    await lab.until_said(ranks.head, "sim_listening", times)


async def _last_line(lab: Lab, name: str) -> str:
    lines = [line for line in await lab.backend.read_log(name, 50) if "sim_" in line]
    return lines[-1]


async def four_ranks_serve_together_once_the_last_has_come(lab: Lab) -> None:
    ranks = _ranks(lab, NEVER)
    await _start(lab, ranks, 0, 1, 2)
    await lab.until_said(ranks.head, "sim_meets")
    try:
        await asyncio.open_connection("127.0.0.1", ranks.port)
    except OSError:
        await lab.backend.start(ranks.units[3].name)
    else:
        raise AssertionError("the head serves without rank 3")
    await _until_served(lab, ranks, 1)
    assert await _answers(ranks) == 200
    for unit in ranks.units:
        assert (await lab.backend.read_status(unit.name)).active_state is ActiveState.ACTIVE


async def a_rank_that_never_comes_fails_the_head_in_time_with_its_number_in_the_last_line(lab: Lab) -> None:
    ranks = _ranks(lab, NEVER, joinTimeoutS=12.0)
    # The workers first: they are there, trying, when the head begins to count.
    await _start(lab, ranks, 1, 3)
    for rank in (1, 3):
        await lab.until_said(ranks.units[rank].name, "sim_meets")
    await lab.backend.start(ranks.head)
    status = await lab.until_state(ranks.head, ActiveState.FAILED)
    assert (status.result, status.exec_main_status) == ("exit-code", 1)
    last = await _last_line(lab, ranks.head)
    assert "rank 2 of 4 did not come" in last and "here: ranks 0, 1, 3" in last, last
    for rank in (1, 3):
        await lab.until_state(ranks.units[rank].name, ActiveState.FAILED)


async def a_killed_rank_takes_the_group_down_and_is_named(lab: Lab) -> None:
    ranks = _ranks(lab, NEVER)
    await _start(lab, ranks, 0, 1, 2, 3)
    await _until_served(lab, ranks, 1)
    await lab.backend.kill(ranks.units[2].name, signal.SIGKILL)
    for unit in ranks.units:
        await lab.until_state(unit.name, ActiveState.FAILED)
    assert "rank 2 left" in await _last_line(lab, ranks.head)


async def a_killed_rank_is_restarted_with_all_others_and_they_serve_again(lab: Lab) -> None:
    ranks = _ranks(lab, SOON)
    await _start(lab, ranks, 0, 1, 2, 3)
    await _until_served(lab, ranks, 1)
    await lab.backend.kill(ranks.units[1].name, signal.SIGKILL)
    await _until_served(lab, ranks, 2)
    assert await _answers(ranks) == 200
    for unit in ranks.units:
        await lab.until(unit.name, _has_come_back, "restarted")


async def a_restart_of_the_head_brings_the_group_together_again(lab: Lab) -> None:
    ranks = _ranks(lab, SOON)
    await _start(lab, ranks, 0, 1, 2, 3)
    await _until_served(lab, ranks, 1)
    await lab.backend.restart(ranks.head)
    await _until_served(lab, ranks, 2)
    assert await _answers(ranks) == 200
