"""Which target answers, and which come after it should it fail before its first byte.

Pure. Least loaded first, counted from the moment of dispatch; weights only share ties; targets that just
refused a connection come last but are never left out, so a cool-down alone can never turn a request away.
"""

from collections.abc import Collection, Mapping, Sequence

from core.api import RouteTarget


def order_targets(
    ready: Sequence[RouteTarget], in_flight: Mapping[str, int], cooling: Collection[str], turn: int
) -> tuple[RouteTarget, ...]:
    """All ready targets, best first.

    `in_flight` counts requests per target id, `cooling` names targets that failed a moment ago, and `turn` is a
    number that grows by one with each request for the model: it picks among equals.
    """
    if len(ready) < 2:
        return tuple(ready)
    ranked = sorted(ready, key=lambda target: (target.id in cooling, in_flight.get(target.id, 0)))
    best = ranked[0]
    rank = (best.id in cooling, in_flight.get(best.id, 0))
    tied = [target for target in ranked if (target.id in cooling, in_flight.get(target.id, 0)) == rank]
    first = pick_by_weight(tied, turn)
    return (first, *(target for target in ranked if target is not first))


def pick_by_weight(tied: Sequence[RouteTarget], turn: int) -> RouteTarget:
    """The target whose share of the turns this one is: of every sum-of-weights turns each gets its weight."""
    position = turn % sum(max(target.weight, 1) for target in tied)
    for target in tied:
        position -= max(target.weight, 1)
        if position < 0:
            return target
    return tied[-1]
