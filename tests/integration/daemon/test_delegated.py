"""A runtime that a leader delegated to this node: every mechanism of ours leaves it alone, on real processes.

Each test has a runtime of our own beside it, to which the mechanism does happen: only then has the member been spared.
The delegation is written into the unit file, as the leader's order would, while no daemon runs.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from core.activity import RuntimeActivity
from core.errors import PermissionError_, UnavailableError
from core.runtime import Authority, AuthorityScope
from tests.integration.daemon.stack import Stack, running
from tests.integration.daemon.test_admission import sizes
from tests.integration.daemon.test_watchdog import reporting
from units.model import UnitRecord
from units.names import engine_unit_name
from units.record import change_record

LEADER = Authority("leader-1", AuthorityScope.DISTRIBUTED_MEMBER, group="big")


def two(settings: str = "", policy: str = "minResidencyMs: 0") -> str:
    """`member` will be delegated, `own` never is; all else about them is alike."""
    return (
        f"runtimePolicy: {{{policy}}}\n"
        "models: [{id: m, runtime: member}, {id: o, runtime: own}]\n"
        f"runtimes:\n  member: {{engine: sim, {settings}}}\n  own: {{engine: sim, {settings}}}\n"
    )


def delegated(record: UnitRecord) -> UnitRecord:
    return replace(record, authority=LEADER, hold=False)


async def delegate(stack: Stack) -> None:
    """Give `member` to the leader; a new daemon adopts it."""
    stack.kill(stack.daemon)
    path = stack.layout.units / engine_unit_name("member")
    path.write_text(change_record(path.read_text(), delegated))
    stack.start_daemon()
    await stack.until(lambda state: len(state.runtimes) == 2)


async def both_running(stack: Stack) -> int:
    """`own` runs, and `member` as the leader's; its pid."""
    for name in ("member", "own"):
        await stack.client.start_runtime(name)
    await delegate(stack)
    return (await stack.until_runtime("member", "running")).pid


async def test_an_operator_and_a_client_of_the_worker_are_refused_with_the_owners_name(tmp_path: Path) -> None:
    async with running(tmp_path, two()) as stack:
        pid = await both_running(stack)
        for action in (stack.client.stop_runtime, stack.client.restart_runtime, stack.client.start_runtime):
            with pytest.raises(PermissionError_, match=r"belongs to leader-1 \(distributed-member\)") as caught:
                await action("member")
            assert caught.value.code == "runtime_authority_forbidden"
        with pytest.raises(PermissionError_, match="client on .* may not start it"):
            await stack.client.start_runtime("member", reason="request")
        assert (await stack.until_runtime("member", "running")).pid == pid


async def test_a_reload_restarts_our_own_runtime_and_not_the_member(tmp_path: Path) -> None:
    async with running(tmp_path, two()) as stack:
        pid = await both_running(stack)
        own = await stack.until_runtime("own", "running")
        stack.write_config(two("options: {tokensPerS: 7}"))
        planned = await stack.client.plan_reload()
        assert (planned.restarted, planned.stopped) == (["own"], [])
        assert (await stack.client.reload()).restarted == ["own"]
        await stack.until(lambda s: s.runtimes[1].state == "running" and s.runtimes[1].pid not in (0, own.pid))
        assert (await stack.until_runtime("member", "running")).pid == pid


async def test_a_member_that_left_the_config_runs_on(tmp_path: Path) -> None:
    async with running(tmp_path, two()) as stack:
        pid = await both_running(stack)
        stack.write_config("runtimes: {}\n")
        assert (await stack.client.reload()).stopped == ["own"]
        await stack.until(lambda s: [r.id for r in s.runtimes] == ["member"])
        assert stack.engine_pids() == [pid]


async def test_stop_all_frees_our_own_engines_and_not_the_member(tmp_path: Path) -> None:
    async with running(tmp_path, two("keepWarm: true")) as stack:
        pid = await both_running(stack)
        assert (await stack.client.set_serving(False)).stopped == ["own"]
        await stack.until_runtime("own", "stopped")
        assert stack.engine_pids() == [pid]
        await stack.client.set_serving(True)
        await stack.until_runtime("own", "running")
        assert (await stack.until_runtime("member", "running")).pid == pid


async def test_keep_warm_starts_our_own_runtime_and_not_the_member(tmp_path: Path) -> None:
    async with running(tmp_path, two("keepWarm: true")) as stack:
        for name in ("member", "own"):
            await stack.client.stop_runtime(name)
        await delegate(stack)
        assert (await stack.until_runtime("member", "stopped")).pid == 0
        own = await stack.client.start_runtime("own")  # two passes of the reconciler at least
        assert stack.engine_pids() == [own.pid]


async def test_an_idle_member_outlives_its_idle_stop(tmp_path: Path) -> None:
    async with running(tmp_path, two("idleStopMs: 3000")) as stack:
        pid = await both_running(stack)
        assert (await stack.until_runtime("own", "stopped")).reason == "idle"
        assert stack.engine_pids() == [pid]


async def test_a_member_makes_no_room_and_the_refusal_names_its_owner(tmp_path: Path) -> None:
    share = sizes(0.4)
    policy = f"memoryBudgetGb: {sizes(0.7)}, minResidencyMs: 0"
    async with running(tmp_path, two(f"memoryGb: {share}", policy)) as stack:
        await stack.client.start_runtime("member")
        await delegate(stack)
        pid = (await stack.until_runtime("member", "running")).pid
        with pytest.raises(UnavailableError, match=r"member \(authority of leader-1\) stays") as caught:
            await stack.client.start_runtime("own")
        assert caught.value.code == "runtime_authority_conflict"
        assert stack.engine_pids() == [pid]


async def test_the_watchdog_ejects_our_own_engine_and_not_the_member(tmp_path: Path) -> None:
    watchdog = "watchdog: {ejectAfterMs: 10000, minNoProgressMs: 60000}"
    async with running(tmp_path, two(watchdog)) as stack:
        pid = await both_running(stack)
        async with reporting(stack, RuntimeActivity(active=2), "member", "own"):
            await stack.until(lambda _: "warning watchdog_ejected" in stack.log_text())
        lines = [line for line in stack.log_text().split("\n") if line.startswith("warning watchdog_")]
        assert all("runtime=own" in line for line in lines)
        table = await anext(tables := stack.client.routes())
        await tables.aclose()
        assert {model.id: model.targets[0].ready for model in table.models} == {"m": True, "o": False}
        assert (await stack.until_runtime("member", "running")).pid == pid
