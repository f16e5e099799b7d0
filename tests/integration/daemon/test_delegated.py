"""A runtime that a leader delegated to this node: every mechanism of ours leaves it alone, on real processes.

Each test has a runtime of our own beside it, to which the mechanism does happen: only then has the member been spared.
The delegation is written into the unit file, as the leader's order would, while no daemon runs.
"""

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from core.activity import RuntimeActivity
from core.api import NodeState, RuntimeStatus
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
        with pytest.raises(PermissionError_, match=r"belongs to leader-1 .* may not warm it") as caught:
            await stack.client.warm_up_runtime("member")
        assert caught.value.code == "runtime_authority_forbidden"
        assert (await stack.client.warm_up_runtime("own")).took_s > 0
        with pytest.raises(PermissionError_, match="client on .* may not start it"):
            await stack.client.start_runtime("member", reason="request")
        assert (await stack.until_runtime("member", "running")).pid == pid


async def test_a_reload_restarts_our_own_runtime_and_not_the_member(tmp_path: Path) -> None:
    async with running(tmp_path, two(), unseen=True) as stack:
        pid = await both_running(stack)
        own = await stack.until_runtime("own", "running")
        stack.write_config(two("options: {tokensPerS: 7}"))
        planned = await stack.client.plan_reload()
        assert (planned.restarted, planned.stopped) == (["own"], [])
        assert (await stack.client.reload()).restarted == ["own"]
        await stack.until(lambda s: s.runtimes[1].state == "running" and s.runtimes[1].pid not in (0, own.pid))
        assert (await stack.until_runtime("member", "running")).pid == pid


async def test_a_member_that_left_the_config_runs_on(tmp_path: Path) -> None:
    async with running(tmp_path, two(), unseen=True) as stack:
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


def find(state: NodeState, runtime_id: str) -> RuntimeStatus:
    return next(runtime for runtime in state.runtimes if runtime.id == runtime_id)


async def crash(stack: Stack, runtime_id: str) -> RuntimeStatus:
    """End its engine from outside; its status once it runs again."""
    pid = (await stack.until_runtime(runtime_id, "running")).pid
    os.kill(pid, signal.SIGKILL)
    await stack.until(
        lambda s: any(r.id == runtime_id and r.state == "running" and r.pid not in (0, pid) for r in s.runtimes)
    )
    return await stack.until_runtime(runtime_id, "running")


async def test_a_member_that_crashes_is_brought_back_by_its_unit_alone(tmp_path: Path) -> None:
    async with running(tmp_path, two()) as stack:
        await both_running(stack)
        for name in ("member", "own"):
            await crash(stack, name)
        # Our own is held back now: we stop it, wait, and give it a new life, in which its unit counts from zero.
        assert ((await crash(stack, "own")).restarts, (await crash(stack, "member")).restarts) == (0, 2)
        said = [line for line in stack.log_text().split("\n") if "runtime_state" in line and "signal 9" in line]
        assert any("runtime=own" in line and "started again in 1 s" in line for line in said)
        members = [line for line in said if "runtime=member" in line]
        assert len(members) == 2
        assert all("its unit starts it again, and leader-1 decides the rest" in line for line in members)


async def test_a_member_whose_unit_gave_it_up_stays_failed_until_its_owner_starts_it(tmp_path: Path) -> None:
    async with running(tmp_path, two("keepWarm: true")) as stack:
        await both_running(stack)
        while True:  # until the start limit of its unit
            at_rest = await stack.until(lambda s: find(s, "member").state in ("running", "failed"))
            if find(at_rest, "member").state == "failed":
                break
            pid = find(at_rest, "member").pid
            os.kill(pid, signal.SIGKILL)
            await stack.until(lambda s, was=pid: find(s, "member").pid != was)  # type: ignore[misc]
        own = await stack.client.restart_runtime("own")  # passes of the reconciler, which would start it again
        assert find(await stack.client.state(), "member").state == "failed"
        assert stack.engine_pids() == [own.pid]


async def test_a_member_that_does_not_come_back_in_time_is_left_to_its_owner(tmp_path: Path) -> None:
    """Engines that load for 4 s, and a config that grants 1 s from now on."""
    async with running(tmp_path, two("options: {loadTimeS: 4}")) as stack:
        for name in ("member", "own"):
            await stack.client.start_runtime(name)
        stack.write_config(two("options: {loadTimeS: 4}, startupTimeoutMs: 1000"))
        await delegate(stack)
        for name in ("member", "own"):
            os.kill((await stack.until_runtime(name, "running")).pid, signal.SIGKILL)
        assert "did not serve within 1 s" in (await stack.until_runtime("own", "failed")).reason
        status = await stack.until_runtime("member", "running")
        told = [line for line in stack.log_text().split("\n") if "member_left_to_owner" in line]
        assert told and all("owner=leader-1" in line and "runtime=member" in line for line in told)
        assert (status.restarts, stack.engine_pids()) == (1, [status.pid])
