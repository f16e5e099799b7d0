"""What this worker has under way at each target: requests at the engine, requests that wait, bytes that came.

A request counts from the moment it is dispatched until the connection to its target was really given back or
closed: a client that left does not free a slot in which the engine still computes. `gateway/activity.py` tells the
daemon of it; `gateway/router.py` chooses by it.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from core.api import RouteTarget
from core.clock import Clock
from core.http.plan import Progress

COOLDOWN_S = 5.0


class UnderWay(Protocol):
    """One request at an engine (`gateway.relay.InferencePlan`)."""

    progress: Progress | None

    @property
    def is_streamed(self) -> bool: ...


class TargetLoad:
    """One target, as this worker uses it."""

    __slots__ = ("_clock", "_touch", "active", "done_bytes", "ended_s", "runtime_id", "under_way", "waiting")

    def __init__(self, runtime_id: str, clock: Clock, touch: Callable[[], None]) -> None:
        self.runtime_id = runtime_id
        self.active = 0
        self.waiting = 0
        self.ended_s: float | None = None
        """When the last request ended; monotonic."""
        self.done_bytes = 0
        """Of the answers that are over."""
        self.under_way: set[UnderWay] = set()
        self._clock = clock
        self._touch = touch

    def begin(self, request: UnderWay) -> None:
        """The request is sent to the engine."""
        self.active += 1
        self.under_way.add(request)
        self._touch()

    def end(self, request: UnderWay) -> None:
        """The engine works on it no longer."""
        self.active -= 1
        self.under_way.discard(request)
        if request.progress is not None:
            self.done_bytes += request.progress.size_bytes
        self.ended_s = self._clock.monotonic_s()
        self._touch()

    @contextmanager
    def wait(self) -> Iterator[None]:
        """Count a request that waits, for as long as the block lasts."""
        self.waiting += 1
        self._touch()
        try:
            yield
        finally:
            self.waiting -= 1
            self._touch()

    @property
    def is_idle(self) -> bool:
        return not self.active and not self.waiting


class Loads:
    """All targets by id. One event loop, no locks."""

    def __init__(self, clock: Clock) -> None:
        self.touched: Callable[[], None] = _ignore
        """Called after every change of what is under way."""
        self._clock = clock
        self._targets: dict[str, TargetLoad] = {}
        self._cooling: dict[str, float] = {}
        self._turns: dict[str, int] = {}

    def of(self, target: RouteTarget) -> TargetLoad:
        """The load of a target of the route table; kept for as long as the table has it or a request is there."""
        found = self._targets.get(target.id)
        if found is None:
            found = self._targets[target.id] = TargetLoad(target.runtime, self._clock, self._touch)
        return found

    def retain(self, target_ids: Collection[str]) -> None:
        """The table has these and no others."""
        for target_id in [i for i, load in self._targets.items() if i not in target_ids and load.is_idle]:
            del self._targets[target_id]
        self._touch()

    def __iter__(self) -> Iterator[TargetLoad]:
        return iter(self._targets.values())

    def in_flight(self) -> Mapping[str, int]:
        return {target_id: load.active for target_id, load in self._targets.items() if load.active}

    def cooling(self) -> Collection[str]:
        """Targets that failed less than `COOLDOWN_S` ago."""
        if not self._cooling:
            return ()
        now_s = self._clock.monotonic_s()
        for target_id in [each for each, until_s in self._cooling.items() if until_s <= now_s]:
            del self._cooling[target_id]
        return self._cooling.keys()

    def turn(self, model_id: str) -> int:
        """A number that grows by one with each request for the model."""
        turn = self._turns.get(model_id, 0)
        self._turns[model_id] = turn + 1
        return turn

    def failed(self, target_id: str) -> None:
        """The target could not be reached or failed: for a while it comes last."""
        self._cooling[target_id] = self._clock.monotonic_s() + COOLDOWN_S

    def worked(self, target_id: str) -> None:
        """The target answered: whatever was held against it is forgotten."""
        if self._cooling:
            self._cooling.pop(target_id, None)

    def _touch(self) -> None:
        self.touched()


def _ignore() -> None:
    """Nobody wants to know yet."""
