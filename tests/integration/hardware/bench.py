"""A sampler on a fake machine: a fake nvidia-smi, a kernel log that the test writes, and no other hardware."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path

from core.clock import SystemClock
from core.hardware import Card, HardwareState
from core.log import get_logger
from daemon.hardware.inventory import Rules
from daemon.hardware.probe import Places
from daemon.hardware.sampler import Sampler, Settings
from tests.fakes.nvidia_smi import FakeNvidiaSmi

PATIENCE_S = 60.0
_STEP_S = 0.02


class Bench:
    """What a test holds in its hands."""

    def __init__(self, directory: Path, machine: str) -> None:
        self.smi = FakeNvidiaSmi(directory / "smi", machine)
        self.kernel_log = directory / "kmsg"
        self.kernel_log.touch()
        self.owners: dict[int, str] = {}
        self.settings = Settings(
            places=Places(nvidia_smi=str(self.smi.program), nvidia_smi_timeout_s=2.0, ib_root=directory / "infiniband"),
            rules=Rules(stale_after_s=5.0),
            cards_every_s=0.5,
            kernel_log=self.kernel_log,
            marks=directory / "marks.json",
        )
        self.sampler = self.new_sampler()

    def new_sampler(self) -> Sampler:
        async def owners() -> Mapping[int, str]:
            return self.owners

        return Sampler(self.settings, owners=owners, clock=SystemClock(), log=get_logger("test"))

    def use(self, **changes: object) -> None:
        self.settings = replace(self.settings, **changes)  # type: ignore[arg-type]  # the test's own names
        self.sampler.use_settings(self.settings)

    def say(self, line: str) -> None:
        """The kernel says something."""
        with self.kernel_log.open("a") as log:
            log.write(line + "\n")

    async def until(self, holds: Callable[[HardwareState], bool]) -> HardwareState:
        try:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    state = self.sampler.state()
                    if holds(state):
                        return state
                    await asyncio.sleep(_STEP_S)
        except TimeoutError:
            raise AssertionError(f"never happened: {self.sampler.state()}") from None

    async def until_card(self, index: int, holds: Callable[[Card], bool]) -> Card:
        state = await self.until(lambda s: any(c.index == index and holds(c) for c in s.cards))
        return card(state, index)


def card(state: HardwareState, index: int) -> Card:
    return next(card for card in state.cards if card.index == index)


def codes(state: HardwareState) -> set[str]:
    return {problem.code for problem in state.problems}


def codes_of(of: Card) -> set[str]:
    return {problem.code for problem in of.problems}


@contextlib.asynccontextmanager
async def sampling(directory: Path, machine: str) -> AsyncIterator[Bench]:
    """A bench whose sampler runs and has seen its cards."""
    bench = Bench(directory, machine)
    async with running(bench.sampler):
        await bench.until(lambda state: bool(state.cards))
        yield bench


@contextlib.asynccontextmanager
async def running(sampler: Sampler) -> AsyncIterator[None]:
    task = asyncio.create_task(sampler.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
