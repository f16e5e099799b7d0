"""SIGKILL of the daemon in the middle of every kind of stop and start: the next one finishes it, and forgets nothing.

A stop is held in its drain by a gateway worker that has not seen the newest route table.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from core.activity import ActivityReport, RuntimeActivity
from tests.integration.daemon.stack import Stack, running
from tests.integration.daemon.test_admission import sizes

POLICY = f"runtimePolicy: {{memoryBudgetGb: {sizes(0.7)}, minResidencyMs: 0, drainTimeoutMs: 60000}}\n"


def config(a: str = "", b: str = "") -> str:
    """`a` and `b` do not fit together."""
    size = f"memoryGb: {sizes(0.4)}"
    return f"{POLICY}runtimes: {{a: {{engine: sim, {size}, {a}}}, b: {{engine: sim, {size}, {b}}}}}\n"


async def hold_drains(stack: Stack) -> None:
    """As a worker that dispatches by an older table: whatever drains waits for it."""
    table = await anext(tables := stack.client.routes())
    await tables.aclose()
    idle = {"a": RuntimeActivity(idle_s=9.0)}
    await stack.client.report_activity(ActivityReport(source="t", epoch=table.epoch, version=0, runtimes=idle))


async def keep_reporting(stack: Stack) -> None:
    while True:
        await hold_drains(stack)
        await asyncio.sleep(0.3)


async def killed_while(stack: Stack, act: Callable[[], Awaitable[object]], state: str) -> None:
    """Begin `act`; when `a` is in that state, kill the daemon and start the next."""
    await hold_drains(stack)
    reporting = asyncio.create_task(keep_reporting(stack))
    acting = asyncio.ensure_future(act())
    await stack.until_runtime("a", state)
    await stack.until(lambda _: stack.engine_pids() != [])  # a load has begun only when there is a process
    stack.kill(stack.daemon)
    for task in (reporting, acting):
        task.cancel()
    await asyncio.gather(reporting, acting, return_exceptions=True)
    stack.start_daemon()


async def test_stop_all_is_finished_and_a_pinned_runtime_comes_back_with_serving(tmp_path: Path) -> None:
    async with running(tmp_path, config("keepWarm: true")) as stack:
        await stack.until_runtime("a", "running")
        await killed_while(stack, lambda: stack.client.set_serving(False), "draining")
        await stack.until_runtime("a", "stopped")
        assert stack.engine_pids() == []
        await stack.client.set_serving(True)
        await stack.until_runtime("a", "running")


async def test_an_operators_stop_is_finished_and_stays(tmp_path: Path) -> None:
    async with running(tmp_path, config("keepWarm: true")) as stack:
        await stack.until_runtime("a", "running")
        await killed_while(stack, lambda: stack.client.stop_runtime("a"), "draining")
        stopped = await stack.until_runtime("a", "stopped")
        assert stopped.hold and stopped.reason == "stopped by an operator"


async def test_an_eviction_is_finished_and_a_request_gets_the_runtime_back(tmp_path: Path) -> None:
    async with running(tmp_path, config()) as stack:
        await stack.client.start_runtime("a")
        await killed_while(stack, lambda: stack.client.start_runtime("b"), "draining")
        await stack.until_runtime("a", "stopped")
        assert (await stack.client.start_runtime("a", reason="request")).state == "running"


async def test_an_idle_stop_is_finished_and_a_request_gets_the_runtime_back(tmp_path: Path) -> None:
    async with running(tmp_path, config("idleStopMs: 4000")) as stack:
        await stack.client.start_runtime("a")
        await killed_while(stack, lambda: asyncio.sleep(0), "draining")
        await stack.until_runtime("a", "stopped")
        assert (await stack.client.start_runtime("a", reason="request")).state == "running"


@pytest.mark.parametrize(
    ("settings", "state"),
    [("options: {loadTimeS: 5}", "starting"), ("warmup: true, options: {firstTokenS: 5}", "warming")],
)
async def test_a_load_goes_on_in_the_same_process(tmp_path: Path, settings: str, state: str) -> None:
    async with running(tmp_path, config(settings)) as stack:
        await killed_while(stack, lambda: stack.client.start_runtime("a"), state)
        (pid,) = stack.engine_pids()
        assert (await stack.until_runtime("a", "running")).pid == pid


async def test_a_restart_is_finished_with_the_new_settings(tmp_path: Path) -> None:
    async with running(tmp_path, config("keepWarm: true")) as stack:
        pid = (await stack.until_runtime("a", "running")).pid

        async def reload() -> None:
            # Not before the drain is held: the daemon notices by itself that the config was written.
            stack.write_config(config("keepWarm: true, options: {tokensPerS: 9}"))
            await stack.client.reload()

        await killed_while(stack, reload, "draining")
        await stack.until(lambda s: s.runtimes[0].state == "running" and s.runtimes[0].pid not in (0, pid))
        assert len(stack.engine_pids()) == 1


async def test_a_queued_start_of_a_pinned_runtime_is_queued_again(tmp_path: Path) -> None:
    async with running(tmp_path, config("preferredWarm: true", "keepWarm: true")) as stack:
        await stack.until_runtime("b", "running")
        stack.kill(stack.daemon)
        stack.start_daemon()
        assert (await stack.until_runtime("b", "running")).reason == "adopted"
        assert "b (keep-warm) stays" in (await stack.until_runtime("a", "stopped")).reason
