"""Which target a request goes to, and a slot there: at once where one is free, else in its turn."""

from time import monotonic

from core.api import RouteTarget
from gateway.affinity import is_worth_finding, read_beginning
from gateway.ejection import Standing
from gateway.loads import Loads, TargetLoad
from gateway.router import Field, Order, Why, build_field, order_targets
from gateway.state import Routes, RouteState
from gateway.table import ModelEntry


class Choice:
    """Takes slots for the requests of one worker."""

    def __init__(self, state: RouteState, loads: Loads) -> None:
        self._state = state
        self._loads = loads
        self._fields: dict[int, tuple[Field, tuple[TargetLoad, ...]]] = {}
        """By the identity of `ModelEntry.ready`'s value, which lives as long as these routes."""
        self._fields_of: Routes | None = None

    def take_now(self, routes: Routes, entry: ModelEntry, path: str, unit: int, body: bytes) -> Order | None:
        """A slot of the first target, if one is free and nobody has waited for it. `routes` are the present ones.

        Where the order is a probe, whoever gets it must `end_probe` at the first target.
        """
        ready = entry.ready[path]
        if len(ready) == 1:
            return Order(ready, 1, Why.ONLY) if routes.upstreams[ready[0].id].load.slots.try_take(unit) else None
        beginning = read_beginning(body)
        order = self._order(routes, ready, body, beginning)
        for target in order.targets[: order.usable]:
            load = routes.upstreams[target.id].load
            if load.slots.try_take(unit):
                self._sent(load, beginning)
                if order.why is Why.PROBE and target is not order.targets[0]:
                    routes.upstreams[order.targets[0].id].load.health.end_probe()
                return _with_first(order, target)
        if order.why is Why.PROBE:
            routes.upstreams[order.targets[0].id].load.health.end_probe()
        return None

    async def take(
        self, routes: Routes, entry: ModelEntry, path: str, unit: int, body: bytes
    ) -> tuple[Order, float] | None:
        """A slot, and how long it was waited for (seconds); None: the routes have changed, look again.

        Raises: ApiError when too many wait already, or the wait is too long.
        """
        found = self.take_now(routes, entry, path, unit, body)
        if found is not None:
            return found, 0.0
        # A probe is for who need not wait.
        beginning = read_beginning(body)
        order = self._order(routes, entry.ready[path], body, beginning, probes=False)
        loads = [routes.upstreams[target.id].load for target in order.targets[: order.usable]]
        begun_s = monotonic()
        # What a queued request is for stays loaded: it would wait in vain.
        with loads[0].wait(), loads[0].staying(order.targets[0].adapter):
            slots = await loads[0].slots.wait(unit, entry.model.id, [load.slots for load in loads[1:]])
        if slots is None:
            return None
        chosen = next(target for target, load in zip(order.targets, loads, strict=False) if load.slots is slots)
        now = self._state.routes
        upstream = now.upstreams.get(chosen.id) if now is not None else None
        if now is None or upstream is None or not upstream.is_ready or not _is_loaded(now, entry, chosen):
            slots.release(unit)
            return None
        self._sent(upstream.load, beginning)
        return _with_first(order, chosen), monotonic() - begun_s

    def _sent(self, load: TargetLoad, beginning: int | None) -> None:
        load.recent = (load.recent or 0.0) + 1.0
        if beginning is not None:
            self._loads.remember(beginning, load)

    def _order(
        self,
        routes: Routes,
        ready: tuple[RouteTarget, ...],
        body: bytes,
        beginning: int | None,
        *,
        probes: bool = True,
    ) -> Order:
        """Best first. When it is a probe, this request is the one that may."""
        if len(ready) == 1:
            return Order(ready, 1, Why.ONLY)
        field, loads = self._field(routes, ready)
        standings = self._loads.standings(ready)
        # After the standings: who has just come back begins with as many as the others.
        recent = self._loads.recent(loads)
        in_flight = [load.slots.in_use for load in loads]
        remembered = None
        if beginning is not None and is_worth_finding(body):
            row = self._loads.recall(beginning)
            remembered = next((index for index, load in enumerate(loads) if load.slots.row_index == row), None)
        else:
            beginning = None
        while True:
            order = order_targets(field, in_flight, recent, standings, beginning, remembered)
            if order.why is not Why.PROBE:
                return order
            first = order.targets[0].id
            if probes and routes.upstreams[first].load.health.try_probe():
                return order
            standings = {**standings, first: Standing.OUT}

    def _field(self, routes: Routes, ready: tuple[RouteTarget, ...]) -> tuple[Field, tuple[TargetLoad, ...]]:
        if routes is not self._fields_of:
            self._fields_of, self._fields = routes, {}
        found = self._fields.get(id(ready))
        if found is None:
            loads = tuple(routes.upstreams[target.id].load for target in ready)
            found = self._fields[id(ready)] = build_field(ready), loads
        return found


def _with_first(order: Order, first: RouteTarget) -> Order:
    """The order with the target first that had a slot."""
    if first is order.targets[0]:
        return order
    return Order((first, *(target for target in order.targets if target is not first)), order.usable, Why.LOAD)


def _is_loaded(now: Routes, entry: ModelEntry, chosen: RouteTarget) -> bool:
    """Whether the target has the model's adapter, by the routes of this moment; where it is none, it needs none."""
    if not chosen.adapter:
        return True
    model = now.lookup.models.get(entry.model.id)
    return model is not None and any(one.id == chosen.id and one.is_usable for one in model.model.targets)
