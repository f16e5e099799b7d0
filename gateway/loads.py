"""The targets as this worker uses them: their slots, and what is under way there.

A request counts, and holds its slot, from the moment it is dispatched until the connection to its target was really
given back or closed: a client that left does not free a slot in which the engine still computes. Slots and cool-downs
are shared with the other workers (`gateway/slots.py`, `board.py`), what is under way is this worker's own, and
`gateway/activity.py` tells the daemon of it.
"""

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from core.api import RouteTarget
from core.clock import Clock
from core.http.plan import Progress
from gateway.board import Seat
from gateway.slots import Slots
from gateway.turns import limits_of

COOLDOWN_S = 5.0


class UnderWay(Protocol):
    """One request at an engine (`gateway.relay.InferencePlan`)."""

    progress: Progress | None

    @property
    def is_streamed(self) -> bool: ...


class TargetLoad:
    """One target, as this worker uses it."""

    __slots__ = ("_changed", "_clock", "active", "done_bytes", "ended_s", "runtime_id", "slots", "under_way", "waiting")

    def __init__(self, runtime_id: str, slots: Slots, clock: Clock, changed: asyncio.Event) -> None:
        self.runtime_id = runtime_id
        self.slots = slots
        self.active = 0
        self.waiting = 0
        self.ended_s: float | None = None
        """When the last request ended; monotonic."""
        self.done_bytes = 0
        """Of the answers that are over."""
        self.under_way: set[UnderWay] = set()
        self._clock = clock
        self._changed = changed

    def begin(self, request: UnderWay) -> None:
        """The request, which has a slot, is sent to the engine."""
        self.active += 1
        self.under_way.add(request)
        self._changed.set()

    def end(self, request: UnderWay, unit: int) -> None:
        """The engine works on it no longer, and its slot is free."""
        self.active -= 1
        self.under_way.discard(request)
        if request.progress is not None:
            self.done_bytes += request.progress.size_bytes
        self.ended_s = self._clock.monotonic_s()
        self.slots.release(unit)
        self._changed.set()

    @contextmanager
    def wait(self) -> Iterator[None]:
        """Count a request that waits, for as long as the block lasts."""
        self.waiting += 1
        self._changed.set()
        try:
            yield
        finally:
            self.waiting -= 1
            self._changed.set()

    @property
    def is_idle(self) -> bool:
        return not self.active and not self.waiting


class Loads:
    """All targets by id. One event loop, no locks."""

    def __init__(self, clock: Clock, seat: Seat) -> None:
        self.changed = asyncio.Event()
        """Set after every change of what is under way."""
        self._clock = clock
        self._seat = seat
        self._targets: dict[str, TargetLoad] = {}
        self._turns: dict[str, int] = {}

    def of(self, target: RouteTarget) -> TargetLoad:
        """The load of a target of the route table; kept for as long as the table has it or a request is there.

        Raises: BoardFull.
        """
        found = self._targets.get(target.id)
        if found is None:
            slots = Slots(self._seat.row(target.id), self._clock)
            found = self._targets[target.id] = TargetLoad(target.runtime, slots, self._clock, self.changed)
        found.slots.configure(limits_of(target))
        return found

    def settle(self, targets: Collection[RouteTarget]) -> None:
        """The table has these and no others. Who waits for one that is not ready any more must look again."""
        known = {target.id for target in targets}
        ready = {target.id for target in targets if target.ready}
        for target_id, load in list(self._targets.items()):
            if target_id not in ready:
                load.slots.look_again()
            if target_id not in known and load.is_idle:
                del self._targets[target_id]
                load.slots.close()
        self.changed.set()

    def let_in(self) -> None:
        """Another worker says that it is the turn of somebody who waits here."""
        for load in self._targets.values():
            if load.slots.waiting:
                load.slots.let_in()

    def follow_wake_ups(self) -> None:
        """Listen to the other workers from now on; until `close`."""
        asyncio.get_running_loop().add_reader(self._seat.waker, self._woken)

    def close(self) -> None:
        """Listen no longer. What this worker has on the board goes when it ends."""
        asyncio.get_running_loop().remove_reader(self._seat.waker)
        self._seat.close()

    def __iter__(self) -> Iterator[TargetLoad]:
        return iter(self._targets.values())

    def in_use(self, targets: Sequence[RouteTarget]) -> Mapping[str, int]:
        """Requests at each of these targets and waiting for it, over all workers."""
        return {target.id: self._targets[target.id].slots.in_use for target in targets if target.id in self._targets}

    def cooling(self, targets: Sequence[RouteTarget]) -> Collection[str]:
        """Those of these targets that failed less than `COOLDOWN_S` ago, in whichever worker."""
        now_s = self._clock.monotonic_s()
        known = [(target.id, self._targets.get(target.id)) for target in targets]
        return {id_ for id_, load in known if load is not None and load.slots.cooling_until_s > now_s}

    def turn(self, model_id: str) -> int:
        """A number that grows by one with each request for the model."""
        turn = self._turns.get(model_id, 0)
        self._turns[model_id] = turn + 1
        return turn

    def failed(self, target_id: str) -> None:
        """The target could not be reached or failed: for a while it comes last."""
        load = self._targets.get(target_id)
        if load is not None:
            load.slots.hold_against(self._clock.monotonic_s() + COOLDOWN_S)

    def worked(self, target_id: str) -> None:
        """The target answered: what this worker held against it is forgotten."""
        load = self._targets.get(target_id)
        if load is not None and load.slots.holds_something_against:
            load.slots.hold_against(0)

    def _woken(self) -> None:
        self._seat.hush()
        self.let_in()
