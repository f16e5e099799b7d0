"""A request that comes while its runtime is being stopped: it waits for the end of that, and for the next life."""

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from core.api import NodeState, RuntimeStatus
from core.client import DaemonClient
from core.http.client import Reply
from core.paths import Layout
from tests.integration.daemon.stack import free_port, port_range
from tests.integration.node.up import Up
from tests.rewriting import rewrite

BOUND_S = 60.0
BODY = '{"model":"%s","messages":[{"role":"user","content":"hi"}],"max_tokens":2}'
PATIENT = f"requestStartupWaitMs: {int(BOUND_S * 1000)}"
HEARS = f"engine: sim, {PATIENT}"
DEAF = f"{HEARS}, options: {{ignoreTerm: true}}"
POLICY = "memoryBudgetGb: 100000, minResidencyMs: 500"


class Stage:
    """A node, its daemon, and engines that end when the test ends them: SIGTERM is nothing to them."""

    def __init__(self, up: Up, daemon: DaemonClient) -> None:
        self.up = up
        self.daemon = daemon

    def ask(self, model: str) -> "asyncio.Task[Reply]":
        """A request that is under way."""
        fetched = self.up.http.fetch(
            "POST", "/v1/chat/completions", headers={"Content-Type": "application/json"},
            body=(BODY % model).encode(), timeout_s=2 * BOUND_S,
        )  # fmt: skip
        return asyncio.ensure_future(fetched)

    async def until(self, runtime_id: str, done: Callable[[RuntimeStatus], bool]) -> RuntimeStatus:
        """The runtime as it is once `done` holds."""
        state: NodeState | None = None
        try:
            async with asyncio.timeout(BOUND_S):
                while True:
                    state = await self.daemon.state()
                    found = next(one for one in state.runtimes if one.id == runtime_id)
                    if done(found):
                        return found
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"never happened; last {state}") from None

    async def pid_of(self, runtime_id: str) -> int:
        """The process of its engine, which runs."""
        return (await self.until(runtime_id, lambda one: one.state == "running" and one.pid > 0)).pid

    async def until_waited(self, runtime_id: str) -> None:
        """A request waits for the runtime."""
        await self.until(runtime_id, lambda one: one.queued_requests > 0)

    def end(self, pid: int) -> None:
        """It ends now. On a machine that is slow enough its unit's time to stop is over already, and it is gone."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def sized(gib_1000: int, engine: str) -> str:
    """A runtime that needs so many thousands of GiB: what other programs use is nothing beside it."""
    return f"{{{engine}, memoryGb: {gib_1000}000}}"


def starts(state: Path) -> list[str]:
    """The runtimes that were started, in that order."""
    return re.findall(r"runtime_start .*?runtime=(\w+)", (state / "log" / "daemon.log").read_text())


def edit(config: Path, before: str, after: str) -> None:
    rewrite(config, config.read_text().replace(before, after))


def is_ending(runtime: RuntimeStatus) -> bool:
    return runtime.state in ("draining", "stopping")


@contextlib.asynccontextmanager
async def stage(tmp_path: Path, runtimes: str, policy: str = "") -> AsyncIterator[Stage]:
    low, high = port_range()
    models = ", ".join(f"{{id: {name}, runtime: {name}}}" for name in re.findall(r"(\w+): {engine", runtimes))
    config = (
        f"server: {{port: {free_port()}, workers: 2}}\nports: {{backends: [{low}, {high}]}}\n"
        f"runtimePolicy: {{{policy}}}\nmodels: [{models}]\nruntimes: {runtimes}\n"
    )
    async with Up(tmp_path, config) as up, DaemonClient(Layout.under(tmp_path).daemon_socket) as daemon:
        await up.until_gateway(BOUND_S)
        yield Stage(up, daemon)
        # Engines that do not hear would take their time at the end, too; what is left is killed.
        assert up.process is not None
        up.process.kill()


async def test_one_that_was_idle_comes_back_for_a_request_that_its_stop_met(tmp_path: Path) -> None:
    async with stage(tmp_path, f"{{a: {{{DEAF}}}}}") as one:
        assert (await one.ask("a")).status == 200
        pid = await one.pid_of("a")
        edit(tmp_path / "config.yaml", PATIENT, f"{PATIENT}, idleStopMs: 1")
        await one.until("a", is_ending)
        edit(tmp_path / "config.yaml", "idleStopMs: 1", "idleStopMs: 0")
        asked = one.ask("a")
        await one.until_waited("a")
        one.end(pid)
        assert (await asked).status == 200


async def test_a_restart_is_waited_for(tmp_path: Path) -> None:
    async with stage(tmp_path, f"{{a: {{{DEAF}}}}}") as one:
        assert (await one.ask("a")).status == 200
        pid = await one.pid_of("a")
        restarted = asyncio.ensure_future(one.daemon.restart_runtime("a"))
        await one.until("a", is_ending)
        asked = one.ask("a")
        await one.until_waited("a")
        one.end(pid)
        assert (await asked).status == 200
        assert (await restarted).pid != pid


async def test_one_that_makes_room_comes_back_after_whom_it_made_room_for(tmp_path: Path) -> None:
    """The other is served first, however early the first one's client comes."""
    async with stage(tmp_path, f"{{a: {sized(40, DEAF)}, b: {sized(90, HEARS)}}}", POLICY) as one:
        assert (await one.ask("a")).status == 200
        pid = await one.pid_of("a")
        of_b = one.ask("b")
        await one.until("a", is_ending)
        of_a = one.ask("a")
        await one.until_waited("a")
        one.end(pid)
        assert (await of_b).status == 200
        assert (await of_a).status == 200
    assert starts(tmp_path) == ["a", "b", "a"]


async def test_one_that_stops_first_of_several_does_not_come_back_before_whom_they_make_room_for(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path, f"{{a: {sized(40, DEAF)}, b: {sized(90, HEARS)}, c: {sized(40, DEAF)}}}", POLICY) as one:
        pids = {}
        for name in ("a", "c"):
            assert (await one.ask(name)).status == 200
            pids[name] = await one.pid_of(name)
        of_b = one.ask("b")
        for name in pids:
            await one.until(name, is_ending)
        of_a = one.ask("a")
        await one.until_waited("a")
        one.end(pids["a"])
        await one.until("a", lambda runtime: runtime.state in ("queued", "starting", "running"))
        one.end(pids["c"])
        assert (await of_b).status == 200
        assert (await of_a).status == 200
    assert starts(tmp_path) == ["a", "c", "b", "a"]


async def test_one_that_an_operator_stops_is_not_waited_for(tmp_path: Path) -> None:
    async with stage(tmp_path, f"{{a: {{{DEAF}}}}}") as one:
        assert (await one.ask("a")).status == 200
        pid = await one.pid_of("a")
        stopped = asyncio.ensure_future(one.daemon.stop_runtime("a"))
        await one.until("a", is_ending)
        refused = await one.ask("a")
        one.end(pid)
        assert (refused.status, "Retry-After" in refused.headers) == (503, False)
        assert (await stopped).state == "stopped"
