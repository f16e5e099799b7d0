"""Which target a request goes to, and a slot there: at once where one is free, else in its turn."""

from time import monotonic

from core.api import RouteTarget
from gateway.loads import Loads
from gateway.router import order_targets
from gateway.state import Routes, RouteState
from gateway.table import ModelEntry

Candidates = tuple[RouteTarget, ...]
"""Targets in the order in which they are asked; the request holds a slot of the first."""


class Choice:
    """Takes slots for the requests of one worker."""

    def __init__(self, state: RouteState, loads: Loads) -> None:
        self._state = state
        self._loads = loads

    def take_now(self, routes: Routes, entry: ModelEntry, path: str, unit: int) -> Candidates | None:
        """A slot, if one is free and nobody has waited for it. `routes` are the present ones."""
        ready = entry.ready[path]
        if len(ready) == 1:
            return ready if routes.upstreams[ready[0].id].load.slots.try_take(unit) else None
        ordered, usable = self._order(entry, ready)
        for target in ordered[:usable]:
            if routes.upstreams[target.id].load.slots.try_take(unit):
                return _with_first(ordered, target)
        return None

    async def take(self, routes: Routes, entry: ModelEntry, path: str, unit: int) -> tuple[Candidates, float] | None:
        """A slot, and how long it was waited for (seconds); None: the routes have changed, look again.

        Raises: ApiError when too many wait already, or the wait is too long.
        """
        found = self.take_now(routes, entry, path, unit)
        if found is not None:
            return found, 0.0
        ordered, usable = self._order(entry, entry.ready[path])
        loads = [routes.upstreams[target.id].load for target in ordered[:usable]]
        begun_s = monotonic()
        with loads[0].wait():
            slots = await loads[0].slots.wait(unit, entry.model.id, [load.slots for load in loads[1:]])
        if slots is None:
            return None
        chosen = next(target for target, load in zip(ordered, loads, strict=False) if load.slots is slots)
        now = self._state.routes
        upstream = now.upstreams.get(chosen.id) if now is not None else None
        if upstream is None or not upstream.is_ready:
            slots.release(unit)
            return None
        return _with_first(ordered, chosen), monotonic() - begun_s

    def _order(self, entry: ModelEntry, ready: Candidates) -> tuple[Candidates, int]:
        """Best first, and how many of them are worth asking first: one that failed a moment ago only if all did."""
        if len(ready) == 1:
            return ready, 1
        cooling = self._loads.cooling(ready)
        ordered = order_targets(ready, self._loads.in_use(ready), cooling, self._loads.turn(entry.model.id))
        usable = sum(target.id not in cooling for target in ordered)
        return ordered, usable or len(ordered)


def _with_first(ordered: Candidates, first: RouteTarget) -> Candidates:
    return (first, *(target for target in ordered if target is not first))
