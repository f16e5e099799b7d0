"""When the daemon unloads a LoRA adapter: a test reports as the gateway's workers do, and sees what the engine is told.

The engine is a fake vLLM, a real process under a real unit.
"""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from core.activity import ActivityReport, AdapterActivity, RuntimeActivity
from core.api import RouteTable
from core.errors import LlmgwError, NotFoundError
from tests.integration.daemon.stack import Stack, running
from tests.integration.node.test_adapters import FAKE, Event, read_events, write_adapter

BOUND_S = 60.0


class Worker:
    """One worker of the gateway, as far as the daemon knows: it reports all the time, until it is told to be silent."""

    def __init__(self, stack: Stack, name: str) -> None:
        self.stack = stack
        self.name = name
        self.follows = True
        """Whether it dispatches by the newest table."""
        self.in_use = 0
        """Requests for the adapter `a`."""
        self.table: RouteTable | None = None
        self.newest: RouteTable | None = None
        self.reports = 0

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow())
            group.create_task(self._report())

    async def _follow(self) -> None:
        async for table in self.stack.client.routes():
            self.newest = table

    async def _report(self) -> None:
        while True:
            if self.follows:
                self.table = self.newest
            if self.table is not None:
                adapters = {"a": AdapterActivity(in_use=self.in_use, idle_s=0.0)}
                report = ActivityReport(
                    source=self.name,
                    epoch=self.table.epoch,
                    version=self.table.version,
                    runtimes={"r": RuntimeActivity(active=self.in_use, adapters=adapters)},
                )
                await self.stack.client.report_activity(report)
                self.reports += 1
            await asyncio.sleep(0.05)

    def is_offered(self, adapter: str) -> bool:
        """Whether the newest table lets requests for it through."""
        models = self.newest.models if self.newest is not None else []
        return any(model.id == adapter and model.targets[0].is_usable for model in models)


class Scene:
    """A daemon, its engine, and a worker."""

    def __init__(self, stack: Stack, worker: Worker) -> None:
        self.stack = stack
        self.worker = worker

    @property
    def events(self) -> list[Event]:
        return read_events(self.stack.layout.homes / "r")

    @property
    def done(self) -> list[tuple[str, str]]:
        return [(event.did, event.adapter) for event in self.events]

    async def until_offered(self, adapter: str, *, offered: bool) -> None:
        async with asyncio.timeout(BOUND_S):
            while self.worker.is_offered(adapter) is not offered:  # noqa: ASYNC110 - it is what many events come to
                await asyncio.sleep(0.01)

    async def reported(self, times: int = 5) -> None:
        """The daemon has had so many further reports."""
        until = self.worker.reports + times
        async with asyncio.timeout(BOUND_S):
            while self.worker.reports < until:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


@asynccontextmanager
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    """`a` is loaded, there is no room for another, and the daemon is old enough to know all workers."""
    python = tmp_path / "python"
    python.write_text(f"#!{sys.executable}\n{FAKE.read_text()}")
    python.chmod(0o755)
    models = "".join(f", {{id: {name}, runtime: r, adapter: {write_adapter(tmp_path / name)}}}" for name in ("a", "b"))
    config = (
        f"models: [{{id: base, runtime: r}}{models}]\nengines: {{vllm: {{python: {python}}}}}\n"
        f"runtimes: {{r: {{engine: vllm, weights: {tmp_path}, memoryGb: 0.5, gpus: 0, maxLoadedAdapters: 1}},"
        " s: {engine: sim}}\n"
    )
    async with running(tmp_path, config) as stack:
        worker = Worker(stack, "w")
        task = asyncio.create_task(worker.run())
        try:
            await stack.client.start_runtime("r")
            for name in ("a", "b", "a"):  # nothing is unloaded by a daemon that cannot know all workers yet
                await stack.client.load_adapter("r", name)
            (stack.layout.homes / "r" / "adapters.log").unlink()
            one = Scene(stack, worker)
            await one.until_offered("a", offered=True)
            yield one
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, LlmgwError, ExceptionGroup):
                await task


async def test_none_is_unloaded_before_every_worker_dispatches_without_it(tmp_path: Path) -> None:
    async with scene(tmp_path) as one:
        one.worker.follows = False
        asked = asyncio.create_task(one.stack.client.load_adapter("r", "b"))
        await one.until_offered("a", offered=False)
        await one.reported()
        assert one.done == [], "a request by the old table may come at any moment"
        one.worker.follows = True
        async with asyncio.timeout(BOUND_S):
            await asked
        assert one.done == [("unload", "a"), ("load", "b")]
        await one.until_offered("b", offered=True)
        assert not one.worker.is_offered("a")


async def test_one_that_a_request_slipped_in_for_stays(tmp_path: Path) -> None:
    async with scene(tmp_path) as one:
        one.worker.follows = False
        asked = asyncio.create_task(one.stack.client.load_adapter("r", "b"))
        await one.until_offered("a", offered=False)
        one.worker.in_use = 1
        one.worker.follows = True
        await one.reported()
        assert one.done == []
        one.worker.in_use = 0
        async with asyncio.timeout(BOUND_S):
            await asked
        assert one.done == [("unload", "a"), ("load", "b")]


async def test_one_that_is_always_used_takes_no_new_requests_when_another_has_waited_long(tmp_path: Path) -> None:
    async with scene(tmp_path) as one:
        one.worker.in_use = 1
        await one.reported()
        asked = asyncio.create_task(one.stack.client.load_adapter("r", "b"))
        await one.until_offered("a", offered=False)
        await one.reported()
        assert one.done == [], "what is under way is not broken off"
        one.worker.in_use = 0
        async with asyncio.timeout(BOUND_S):
            await asked
        assert one.done == [("unload", "a"), ("load", "b")]


async def test_one_that_was_closed_for_nobody_is_open_again(tmp_path: Path) -> None:
    async with scene(tmp_path) as one:
        one.worker.in_use = 1
        await one.reported()
        asked = asyncio.create_task(one.stack.client.load_adapter("r", "b"))
        await one.until_offered("a", offered=False)
        asked.cancel()
        await asyncio.wait([asked])
        await one.until_offered("a", offered=True)
        assert one.done == []


async def test_what_cannot_be_loaded_is_refused_with_its_reason(tmp_path: Path) -> None:
    async with scene(tmp_path) as one:
        client = one.stack.client
        with pytest.raises(NotFoundError, match="no model of runtime r is an adapter x") as unknown:
            await client.load_adapter("r", "x")
        with pytest.raises(LlmgwError) as base:
            await client.load_adapter("r", "base")
        with pytest.raises(NotFoundError):
            await client.load_adapter("t", "a")
        assert (unknown.value.code, base.value.code) == ("adapter_unknown", "adapter_unknown")
        await client.stop_runtime("r")
        with pytest.raises(LlmgwError) as away:
            await client.load_adapter("r", "a")
        assert away.value.code == "adapter_runtime_away"
