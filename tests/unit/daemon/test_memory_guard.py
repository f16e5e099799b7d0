"""The memory guard: its floor as a table, and its loop with a memory of the test's own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from core.config.schema import MemorySafety
from daemon.runtimes.memory_guard import MemoryGuard, MemorySafetyAbort, floor_mib

TOTAL_MIB = 100_000


@pytest.mark.parametrize(
    ("total_mib", "configured_gib", "expected"),
    [(512, None, 25), (8192, None, 409), (20_480, None, 1024), (1 << 20, None, 1024), (8192, 2.5, 2560)],
)
def test_the_floor(total_mib: int, configured_gib: float | None, expected: int) -> None:
    assert floor_mib(MemorySafety(min_available_memory_gb=configured_gib), total_mib) == expected


class Machine:
    """How much memory is left, as the test says."""

    def __init__(self, available_mib: int | None = TOTAL_MIB, mode: str = "enforce") -> None:
        self.available_mib = available_mib
        settings = MemorySafety(mode="off" if mode == "off" else "enforce", poll_interval_ms=50)
        self.guard = MemoryGuard(lambda: (TOTAL_MIB, self.available_mib), lambda: settings)
        self.ended: list[str] = []

    async def load(self, runtime_id: str, release: asyncio.Event) -> None:
        """Hold memory until released, as an engine does that loads for a while."""
        try:
            async with self.guard.watching(runtime_id):
                await release.wait()
        except MemorySafetyAbort:
            self.ended.append(runtime_id)
            raise

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.guard.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_a_load_is_ended_when_memory_runs_out_and_says_how_much_was_left() -> None:
    machine = Machine()
    async with machine.watched():
        load = asyncio.create_task(machine.load("big", asyncio.Event()))
        await asyncio.sleep(0)
        machine.available_mib = 300
        with pytest.raises(MemorySafetyAbort, match="loading big was ended: 300 MiB .* 1024 must stay") as caught:
            await load
    assert "llmgw runtime-start big" in caught.value.hint


async def test_the_youngest_load_goes_first_and_the_older_one_may_finish() -> None:
    machine = Machine()
    release = asyncio.Event()
    async with machine.watched():
        old = asyncio.create_task(machine.load("old", release))
        await asyncio.sleep(0)
        young = asyncio.create_task(machine.load("young", release))
        await asyncio.sleep(0)
        machine.available_mib = 10
        with pytest.raises(MemorySafetyAbort):
            await young
        machine.available_mib = TOTAL_MIB  # what the young one held is back
        release.set()
        await old
    assert machine.ended == ["young"]


async def test_both_go_when_the_first_was_not_enough() -> None:
    machine = Machine(available_mib=10)
    async with machine.watched():
        loads = [asyncio.create_task(machine.load(name, asyncio.Event())) for name in ("old", "young")]
        await asyncio.wait(loads)
        assert all(isinstance(load.exception(), MemorySafetyAbort) for load in loads)
    assert machine.ended == ["young", "old"]


@pytest.mark.parametrize("machine", [Machine(10, "off"), Machine(None)], ids=["switched off", "unreadable"])
async def test_nothing_is_ended_without_a_guard_or_without_a_figure(machine: Machine) -> None:
    release = asyncio.Event()
    async with machine.watched():
        load = asyncio.create_task(machine.load("a", release))
        done, _ = await asyncio.wait((load,), timeout=0.3)
        assert not done
        release.set()
        await load


async def test_the_loads_own_deadline_stays_what_it_is() -> None:
    machine = Machine()
    with pytest.raises(TimeoutError):
        async with machine.guard.watching("a"), asyncio.timeout(0.01):
            await asyncio.Event().wait()


async def test_a_cancelled_load_is_no_longer_watched() -> None:
    machine = Machine()
    async with machine.watched():
        load = asyncio.create_task(machine.load("a", asyncio.Event()))
        await asyncio.sleep(0)
        load.cancel()
        await asyncio.gather(load, return_exceptions=True)
        machine.available_mib = 10
        second = asyncio.create_task(machine.load("b", asyncio.Event()))
        with pytest.raises(MemorySafetyAbort):
            await second
    assert machine.ended == ["b"]
