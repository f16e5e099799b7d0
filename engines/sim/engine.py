"""The simulated computation: slots, a queue, the pace of tokens, and counts of all that was seen.

Tests assert on the counts, so each request ends in exactly one of `completed`, `closed_early` (the client left) and
`failed` (a fault struck), and whoever waits for a count is woken by the change, not by a clock.
"""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Callable

import msgspec

from engines.sim.settings import Behaviour, Settings


class Stats(msgspec.Struct, kw_only=True, rename="camel"):
    """`GET /sim/stats`."""

    requests: int = 0
    """Generations that were begun, waiting ones included."""
    open: int = 0
    open_max: int = 0
    running: int = 0
    waiting: int = 0
    completed: int = 0
    closed_early: int = 0
    failed: int = 0
    refused: int = 0
    """Answered 429 because the queue was full."""
    unauthorized: int = 0
    prompt_tokens: int = 0
    tokens: int = 0


class QueueFull(Exception):
    """No slot and no room to wait for one."""


class InjectedFault(Exception):
    """A fault that was asked for. Ends the answer uncleanly."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


class SimEngine:
    """See the module."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.behaviour = settings.behaviour
        self.stats = Stats()
        self.health_status = settings.health_status
        self.health_delay_s = settings.health_delay_s
        self.loaded_at = time.monotonic() + settings.load_time_s
        self._slots = asyncio.Semaphore(settings.slots)
        self._changed = asyncio.Condition()

    @property
    def is_loaded(self) -> bool:
        return time.monotonic() >= self.loaded_at

    @contextlib.asynccontextmanager
    async def request(self, prompt_tokens: int) -> AsyncIterator[None]:
        """One generation from its admission to its end, however it ends. Raises: QueueFull."""
        stats = self.stats
        if self._slots.locked() and stats.waiting >= self.settings.queue:
            stats.refused += 1
            await self._tell()
            raise QueueFull
        stats.requests += 1
        stats.prompt_tokens += prompt_tokens
        stats.open += 1
        stats.open_max = max(stats.open_max, stats.open)
        try:
            await self._tell()
            async with self._slot():
                yield
            stats.completed += 1
        except (asyncio.CancelledError, GeneratorExit):
            stats.closed_early += 1
            raise
        except InjectedFault:
            stats.failed += 1
            raise
        finally:
            stats.open -= 1
            await asyncio.shield(self._tell())
        if self.settings.crash_after and stats.completed >= self.settings.crash_after:
            asyncio.get_running_loop().call_later(0.05, crash)  # after the last bytes have left

    @contextlib.asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        self.stats.waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self.stats.waiting -= 1
        self.stats.running += 1
        try:
            await self._tell()
            yield
        finally:
            self.stats.running -= 1
            self._slots.release()

    async def tokens(self, behaviour: Behaviour, count: int) -> AsyncIterator[int]:
        """The numbers of the tokens, each when it is due; a fault strikes at its place."""
        begin = time.monotonic()
        for number in range(count):
            await self._strike(behaviour, number)
            due = begin + behaviour.first_token_s
            if behaviour.tokens_per_s:
                due += number / behaviour.tokens_per_s
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            self.stats.tokens += 1
            yield number
        await self._strike(behaviour, count, last=True)

    async def _strike(self, behaviour: Behaviour, number: int, *, last: bool = False) -> None:
        if number != behaviour.after_tokens and not (last and number < behaviour.after_tokens):
            return
        if behaviour.fault == "hang":
            await asyncio.Event().wait()
        elif behaviour.fault == "crash":
            crash()
        elif behaviour.fault in ("half-close", "reset"):
            raise InjectedFault(behaviour.fault)

    async def wait_stats(self, reached: Callable[[Stats], bool], timeout_s: float) -> Stats:
        """The counts, as soon as `reached` holds or the time is over."""
        async with self._changed:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._changed.wait_for(lambda: reached(self.stats))
        return self.stats

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def metrics(self) -> str:
        """Prometheus text with the numbers that the adapter reads."""
        s = self.stats
        rows = (
            ("sim_requests_running", "gauge", s.running),
            ("sim_requests_waiting", "gauge", s.waiting),
            ("sim_tokens_total", "counter", s.tokens + s.prompt_tokens),
            ("sim_requests_completed_total", "counter", s.completed),
            ("sim_requests_closed_early_total", "counter", s.closed_early),
        )
        return "".join(f"# TYPE {name} {kind}\n{name} {value}\n" for name, kind, value in rows)


def crash() -> None:
    """Die as a broken engine does: at once, without a word, by SIGSEGV."""
    os.kill(os.getpid(), signal.SIGSEGV)
