"""Whoever waits for a start, a restart or a stop hears the end of it, whatever else is asked meanwhile."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable
from pathlib import Path

import pytest

from core.api import RuntimeStatus
from core.errors import ConflictError, LlmgwError, RefusedError, UnavailableError
from tests.integration.daemon.stack import Stack, running
from tests.integration.daemon.test_admission import post
from tests.rewriting import rewrite

BOUND_S = 60.0
DEAF = "options: {ignoreTerm: true}"
SLOW = "options: {loadTimeS: 600}"
POLICY = "minResidencyMs: 0, admissionWaitMs: 600000"


def two(first: str = "", policy: str = POLICY) -> str:
    """Two runtimes of which one has room: beside their size, what other programs use is nothing."""
    return (
        f"runtimePolicy: {{memoryBudgetGb: 100000, {policy}}}\n"
        f"runtimes:\n  a: {{engine: sim, memoryGb: 60000, {first}}}\n  b: {{engine: sim, memoryGb: 60000}}\n"
    )


async def end_of(operation: Awaitable[RuntimeStatus]) -> RuntimeStatus:
    """What came of it; a wait without an end is a failure of its own."""
    async with asyncio.timeout(BOUND_S):
        return await operation


def let_go(pid: int) -> None:
    """An engine that does not hear SIGTERM ends now. On a slow machine its unit's time to stop is over already."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


async def until_told(stack: Stack, runtime_id: str, words: str) -> None:
    """It is said why the runtime waits."""
    await stack.until(lambda s: any(r.id == runtime_id and words in r.reason for r in s.runtimes))


async def reload(stack: Stack, before: str, after: str) -> None:
    text = stack.layout.config.read_text()
    assert before in text
    rewrite(stack.layout.config, text.replace(before, after))
    assert await post(stack, "/v1/reload", {}) == 200


async def test_one_that_is_restarted_makes_no_room_on_its_way_down(tmp_path: Path) -> None:
    async with running(tmp_path, two(first=DEAF), unseen=True) as stack:
        pid = (await stack.client.start_runtime("a")).pid
        restart = asyncio.create_task(stack.client.restart_runtime("a"))
        await stack.until_runtime("a", "stopping")
        other = asyncio.create_task(stack.client.start_runtime("b"))
        await until_told(stack, "b", "a (restarting) stays")
        let_go(pid)
        again = await end_of(restart)
        assert again.state == "running" and again.pid != pid
        await stack.until_runtime("a", "stopping")
        let_go(again.pid)
        assert (await end_of(other)).state == "running", "its turn comes when the other has had its own"


async def test_one_that_loads_for_an_operator_makes_no_room(tmp_path: Path) -> None:
    async with running(tmp_path, two(first=SLOW), unseen=True) as stack:
        start = asyncio.create_task(stack.client.start_runtime("a"))
        await stack.until_runtime("a", "starting")
        other = asyncio.create_task(stack.client.start_runtime("b"))
        await until_told(stack, "b", "a (starting) stays")
        await stack.client.stop_runtime("a")
        with pytest.raises(ConflictError, match="stopped"):
            await end_of(start)
        assert (await end_of(other)).state == "running"


async def test_two_starts_at_once_that_do_not_fit_both_come(tmp_path: Path) -> None:
    async with running(tmp_path, two(), unseen=True) as stack:
        first, second = (asyncio.create_task(stack.client.start_runtime(name)) for name in ("a", "b"))
        assert (await end_of(first)).id == "a"
        assert (await end_of(second)).id == "b"


async def test_one_that_makes_room_and_is_started_meanwhile_comes_back(tmp_path: Path) -> None:
    async with running(tmp_path, two(first=DEAF), unseen=True) as stack:
        pid = (await stack.client.start_runtime("a")).pid
        other = asyncio.create_task(stack.client.start_runtime("b"))
        await stack.until_runtime("a", "stopping")
        start = asyncio.create_task(stack.client.start_runtime("a"))
        # The one that waits for the room looks for it with every pass; several go by.
        for _ in range(5):
            assert await post(stack, "/v1/reload", {}) == 200
        let_go(pid)
        assert (await end_of(other)).state == "running"
        assert (await end_of(start)).state == "running"


@pytest.mark.parametrize("verb", ["start", "restart"])
async def test_serving_is_stopped_while_somebody_waits(tmp_path: Path, verb: str) -> None:
    async with running(tmp_path, f"runtimes: {{a: {{engine: sim, {SLOW}}}}}\n", unseen=True) as stack:
        call = stack.client.start_runtime if verb == "start" else stack.client.restart_runtime
        waiting = asyncio.create_task(call("a"))
        await stack.until_runtime("a", "starting")
        assert await post(stack, "/v1/serving", {"on": False}) == 200
        with pytest.raises(UnavailableError) as caught:
            await end_of(waiting)
        assert caught.value.code == "system_stopped"
        with pytest.raises(UnavailableError):
            await end_of(call("a"))


@pytest.mark.parametrize("verb", ["start", "restart"])
async def test_it_is_disabled_while_somebody_waits(tmp_path: Path, verb: str) -> None:
    async with running(tmp_path, f"runtimes: {{a: {{engine: sim, {SLOW}}}}}\n", unseen=True) as stack:
        call = stack.client.start_runtime if verb == "start" else stack.client.restart_runtime
        waiting = asyncio.create_task(call("a"))
        await stack.until_runtime("a", "starting")
        await reload(stack, "engine: sim", "enabled: false, engine: sim")
        with pytest.raises(ConflictError) as caught:
            await end_of(waiting)
        assert caught.value.code == "runtime_disabled"
        with pytest.raises(ConflictError):
            await end_of(call("a"))


async def test_its_settings_change_while_it_is_restarted(tmp_path: Path) -> None:
    config = "runtimes: {a: {engine: sim, options: {ignoreTerm: true, tokens: 111}}}\n"
    async with running(tmp_path, config, unseen=True) as stack:
        pid = (await stack.client.start_runtime("a")).pid
        restart = asyncio.create_task(stack.client.restart_runtime("a"))
        await stack.until_runtime("a", "stopping")
        await reload(stack, "tokens: 111", "tokens: 222")
        let_go(pid)
        assert (await end_of(restart)).state == "running"
        assert "222" in stack.unit_text("a")


async def test_a_stop_overrules_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path, f"runtimes: {{a: {{engine: sim, {DEAF}}}}}\n", unseen=True) as stack:
        pid = (await stack.client.start_runtime("a")).pid
        restart = asyncio.create_task(stack.client.restart_runtime("a"))
        await stack.until_runtime("a", "stopping")
        stop = asyncio.create_task(stack.client.stop_runtime("a"))
        with pytest.raises(ConflictError) as caught:
            await end_of(restart)
        assert caught.value.code == "runtime_start_overruled"
        let_go(pid)
        assert (await end_of(stop)).state == "stopped"


async def test_two_restarts_at_once_are_one(tmp_path: Path) -> None:
    async with running(tmp_path, f"runtimes: {{a: {{engine: sim, {DEAF}}}}}\n", unseen=True) as stack:
        pid = (await stack.client.start_runtime("a")).pid
        both = [asyncio.create_task(stack.client.restart_runtime("a"))]
        await stack.until_runtime("a", "stopping")
        both.append(asyncio.create_task(stack.client.restart_runtime("a")))
        let_go(pid)
        first, second = [await end_of(one) for one in both]
        assert first.pid != pid and second.state == "running"


async def test_a_start_overrules_a_stop_or_comes_after_it(tmp_path: Path) -> None:
    """Whichever comes first of two operators' orders, both hear an end."""
    async with running(tmp_path, "runtimes: {a: {engine: sim}}\n", unseen=True) as stack:
        await stack.client.start_runtime("a")
        for _ in range(10):
            stop = asyncio.create_task(stack.client.stop_runtime("a"))
            start = asyncio.create_task(stack.client.start_runtime("a"))
            for order in (stop, start):
                try:
                    await end_of(order)
                except LlmgwError as error:
                    assert error.code in ("runtime_start_overruled", "runtime_stop_overruled"), error
        await end_of(stack.client.start_runtime("a"))


async def test_a_restart_without_room_says_so(tmp_path: Path) -> None:
    policy = "minResidencyMs: 600000, admissionWaitMs: 500"
    async with running(tmp_path, two(policy=policy), unseen=True) as stack:
        await stack.client.start_runtime("b")
        with pytest.raises(RefusedError) as caught:
            await end_of(stack.client.restart_runtime("a"))
        assert caught.value.code == "runtime_capacity_busy"
