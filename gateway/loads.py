"""The targets as this worker uses them: their slots, and what is under way there.

A request counts, and holds its slot, from the moment it is dispatched until the connection to its target was really
given back or closed: a client that left does not free a slot in which the engine still computes. Slots, and what is
held against a target, are shared with the other workers (`gateway/slots.py`, `target_health.py`); what is under way is
this worker's own, and `gateway/activity.py` tells the daemon of it.
"""

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from core.api import RouteTarget
from core.clock import Clock
from core.http.plan import Progress
from gateway.board import Seat
from gateway.ejection import Standing
from gateway.slots import Slots
from gateway.target_health import News, SilentWitness, TargetHealth, Witness
from gateway.turns import limits_of

RECENT_S = 10.0
"""After so long half of what was sent to a target counts as recent no more."""
_ALL_GOOD: Mapping[str, Standing] = {}


@dataclass(slots=True)
class AdapterLoad:
    """One LoRA adapter of a target, as this worker uses it."""

    in_use: int = 0
    """Requests with a slot, or waiting for one: the daemon keeps the adapter loaded for them."""
    ended_s: float | None = None
    """When the last of them ended; monotonic."""


class UnderWay(Protocol):
    """One request at an engine (`gateway.relay.InferencePlan`)."""

    progress: Progress | None

    @property
    def is_streamed(self) -> bool: ...


class TargetLoad:
    """One target, as this worker uses it."""

    __slots__ = (
        "_changed", "_clock", "active", "adapters", "backend_id", "done_bytes", "ended_s", "health", "is_ready",
        "recent", "runtime_id", "slots", "under_way", "waiting",
    )  # fmt: skip

    def __init__(
        self, target: RouteTarget, slots: Slots, health: TargetHealth, clock: Clock, changed: asyncio.Event
    ) -> None:
        self.runtime_id = target.runtime
        """Empty: it is a backend."""
        self.backend_id = target.backend
        self.slots = slots
        self.health = health
        self.is_ready = False
        """By the last route table."""
        self.recent: float | None = None
        """Requests that this worker sent there of late; None: it has just come, or come back."""
        self.active = 0
        self.waiting = 0
        self.ended_s: float | None = None
        """When the last request ended; monotonic."""
        self.done_bytes = 0
        """Of the answers that are over."""
        self.under_way: set[UnderWay] = set()
        self.adapters: dict[str, AdapterLoad] = {}
        """By name."""
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

    def enter(self, adapter: str) -> None:
        """A request for the adapter has, or waits for, a slot."""
        self.adapters.setdefault(adapter, AdapterLoad()).in_use += 1
        self._changed.set()

    def leave(self, adapter: str) -> None:
        """It has none any more."""
        load = self.adapters[adapter]
        load.in_use -= 1
        load.ended_s = self._clock.monotonic_s()
        self._changed.set()

    @contextmanager
    def staying(self, adapter: str) -> Iterator[None]:
        """Keep an adapter, if it is one, for as long as the block lasts."""
        if not adapter:
            yield
            return
        self.enter(adapter)
        try:
            yield
        finally:
            self.leave(adapter)

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

    def __init__(self, clock: Clock, seat: Seat, witness: Witness | None = None) -> None:
        self.changed = asyncio.Event()
        """Set after every change of what is under way."""
        self._clock = clock
        self._seat = seat
        self._witness = witness or SilentWitness()
        self._news = News(seat)
        self._heard = -1
        """Of the news, how much is known; less than nothing: look at all."""
        self._troubled: dict[str, TargetHealth] = {}
        """Targets against which there is, or was a moment ago, anything."""
        self._halve_s = 0.0
        """When recent requests count half next; monotonic."""
        self._targets: dict[str, TargetLoad] = {}

    def of(self, target: RouteTarget) -> TargetLoad:
        """The load of a target of the route table; kept for as long as the table has it or a request is there.

        Raises: BoardFull.
        """
        found = self._targets.get(target.id)
        if found is None:
            row = self._seat.row(target.id)
            slots = Slots(row, self._clock)
            health = TargetHealth(target.id, row, self._clock, self._news, self._witness)
            found = self._targets[target.id] = TargetLoad(target, slots, health, self._clock, self.changed)
        found.slots.configure(limits_of(target))
        return found

    def settle(self, targets: Collection[RouteTarget]) -> None:
        """The table has these and no others. Who waits for one that is not ready any more must look again."""
        known = {target.id for target in targets}
        ready = {target.id for target in targets if target.ready}
        self._heard = -1
        for target_id, load in list(self._targets.items()):
            if target_id not in ready:
                load.slots.look_again()
            elif not load.is_ready:
                # The daemon has seen it work, after whatever we held against it.
                load.health.pardon()
                load.recent = None
            load.is_ready = target_id in ready
            if target_id not in known and load.is_idle:
                del self._targets[target_id]
                self._troubled.pop(target_id, None)
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

    def find(self, target_id: str) -> TargetLoad | None:
        return self._targets.get(target_id)

    def in_use(self, targets: Sequence[RouteTarget]) -> Mapping[str, int]:
        """Requests at each of these targets and waiting for it, over all workers."""
        return {target.id: self._targets[target.id].slots.in_use for target in targets if target.id in self._targets}

    def standings(self, targets: Sequence[RouteTarget]) -> Mapping[str, Standing]:
        """Those of these targets that are not good, and how they stand, in whichever worker they failed."""
        heard = self._news.count()
        if heard != self._heard:
            self._look(heard)
        if not self._troubled:
            return _ALL_GOOD
        found: dict[str, Standing] = {}
        for target in targets:
            health = self._troubled.get(target.id)
            if health is not None:
                standing = health.standing()
                if standing is Standing.GOOD:
                    self._recovered(target.id)
                else:
                    found[target.id] = standing
        return found

    def recall(self, conversation: int) -> int | None:
        """`Slots.row_index` of the target that answered a conversation last, in whichever worker; None: not known."""
        return self._seat.board.recall(conversation)

    def remember(self, conversation: int, load: TargetLoad) -> None:
        """The target will have its beginning in its cache."""
        self._seat.board.remember(conversation, load.slots.row_index)

    def _recovered(self, target_id: str) -> None:
        """It was asked by hardly anybody; that must not count as a debt to it."""
        del self._troubled[target_id]
        self._targets[target_id].recent = None

    def _look(self, heard: int) -> None:
        """Somebody wrote: who is in trouble now?"""
        self._heard = heard
        now_s = self._clock.monotonic_s()
        for target_id, load in self._targets.items():
            health = load.health
            if health.is_failing:
                health.is_doubted = True
                self._troubled[target_id] = health
            elif health.resting_until_s > now_s:
                self._troubled[target_id] = health
            elif target_id in self._troubled:
                self._recovered(target_id)

    def recent(self, loads: Sequence[TargetLoad]) -> Sequence[float]:
        """Requests that were sent to each of these of late; who is new has had as many as the others on average."""
        now_s = self._clock.monotonic_s()
        if now_s >= self._halve_s:
            self._halve_s = now_s + RECENT_S
            for load in self._targets.values():
                load.recent = None if load.recent is None else load.recent / 2
        known = [load.recent for load in loads if load.recent is not None]
        if len(known) < len(loads):
            usual = sum(known) / len(known) if known else 0.0
            for index, load in enumerate(loads):
                if load.recent is None:
                    # A little more for some, so that workers which begin together begin with different targets.
                    load.recent = usual + (index + 1 - self._seat.column) % len(loads) / 1000
            known = [load.recent or 0.0 for load in loads]
        return known

    def _woken(self) -> None:
        self._seat.hush()
        self.let_in()
