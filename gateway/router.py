"""Which target answers, and which come after it should it fail before its first byte. Pure.

Least loaded first, counted from the moment of dispatch over all workers. A conversation goes to the target that it
prefers (`gateway.affinity`) while that one is hardly busier than the least loaded and was not asked much more often of
late: one that repeats itself a hundred times a second is spread after all. Where nothing is preferred, ties go to
the target that had the smallest part of its weight's share.

Targets that rest or are out (`gateway.ejection`) come last but are never left out, so that alone can never turn a
request away. One that returns is asked first, once.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from math import sqrt
from typing import NamedTuple

import msgspec

from core.api import RouteTarget
from gateway.affinity import MASK, MIX, preference, seed_of, weigh
from gateway.ejection import Standing

NEARLY = 1
"""A preferred target may have so many requests more than the least loaded, and a fifth more."""
AHEAD_ALONE = 16.0
"""And may have had so many more than its share of late (`gateway.loads`), while the others are asked hardly anything:
the turns of one agent that works alone …"""
AHEAD = 4.0
"""… and hardly more than chance alone would give it where they are: so many, or 1.25 standard deviations."""
_HARDLY = 8.0


class Why(StrEnum):
    """Why a target is the first that is asked."""

    ONLY = "only"
    """There is no other."""
    LOAD = "load"
    AFFINITY = "affinity"
    YIELDED = "yielded"
    """The conversation prefers another, which is too busy."""
    PROBE = "probe"
    """It returns, and this request finds out."""
    LAST_RESORT = "last_resort"
    """All are out or rest."""


class Order(msgspec.Struct, frozen=True, gc=False):
    """Targets in the order in which they are asked. A struct, because one is made for each request."""

    targets: tuple[RouteTarget, ...]
    usable: int
    """How many of them are worth waiting for."""
    why: Why


class Field(NamedTuple):
    """The targets that are ready for a request, with what is the same for all requests until the routes change."""

    targets: tuple[RouteTarget, ...]
    weights: tuple[int, ...]
    seeds: tuple[int, ...]
    is_even: bool
    """Whether all weights are alike."""


def build_field(targets: Sequence[RouteTarget]) -> Field:
    """The ready targets of one model."""
    weights = tuple(max(target.weight, 1) for target in targets)
    return Field(tuple(targets), weights, tuple(seed_of(target.id) for target in targets), len(set(weights)) < 2)


def order_targets(
    field: Field,
    in_flight: Sequence[int],
    recent: Sequence[float],
    standings: Mapping[str, Standing],
    beginning: int | None = None,
    remembered: int | None = None,
) -> Order:
    """All ready targets, best first.

    `in_flight` counts the requests at each target and waiting for it, over all workers, `recent` those that were sent
    there of late; `standings` names the targets that are not good; `beginning` is the conversation's number, where it
    prefers anything, and `remembered` the index of the target that answered it last.
    """
    targets = field.targets
    if not standings:
        first, why = _choose(field, range(len(targets)), in_flight, recent, beginning, remembered)
        return Order(_line_up(field, first, range(len(targets)), in_flight, recent), len(targets), why)
    groups: dict[Standing, list[int]] = {}
    for index, target in enumerate(targets):
        groups.setdefault(standings.get(target.id, Standing.GOOD), []).append(index)
    ranked = sorted(groups)
    best = groups[ranked[0]]
    first, why = _choose(field, best, in_flight, recent, beginning, remembered)
    ordered = _line_up(field, first, best, in_flight, recent)
    for standing in ranked[1:]:
        following = sorted(groups[standing], key=in_flight.__getitem__)
        ordered += tuple(targets[index] for index in following)
    usable = len(groups.get(Standing.GOOD) or groups.get(Standing.RESTING) or targets)
    returning = groups.get(Standing.RETURNING)
    if returning:
        probed = targets[returning[0]]
        ordered = (probed, *(target for target in ordered if target is not probed))
        return Order(ordered, min(usable + 1, len(targets)), Why.PROBE)
    return Order(ordered, usable, why if ranked[0] is Standing.GOOD else Why.LAST_RESORT)


def _choose(
    field: Field,
    among: Sequence[int],
    in_flight: Sequence[int],
    recent: Sequence[float],
    beginning: int | None,
    remembered: int | None,
) -> tuple[int, Why]:
    """The index of the best of these."""
    if len(among) == 1:
        return among[0], Why.ONLY
    least = min([in_flight[index] for index in among])
    weights = field.weights
    if beginning is None:
        # Half a request more, so that the first turns go by weight, too.
        shares = [((recent[index] + 0.5) / weights[index], index) for index in among if in_flight[index] == least]
        return min(shares)[1], Why.LOAD
    seeds = field.seeds
    liking: list[tuple[float, int]] = [((beginning ^ seeds[index]) * MIX & MASK, index) for index in among]
    if not field.is_even:
        liking = [(weigh(preference(beginning, seeds[index]), weights[index]), index) for index in among]
    preferred = remembered if remembered is not None and remembered in among else max(liking)[1]
    most = least + NEARLY + least // 5
    near = [index for index in among if in_flight[index] <= most]
    floor = min([recent[index] / weights[index] for index in near])
    ahead = AHEAD_ALONE if floor < _HARDLY else max(AHEAD, 1.25 * sqrt(floor))
    if in_flight[preferred] <= most and recent[preferred] - floor * weights[preferred] <= ahead:
        return preferred, Why.AFFINITY
    free = {index for index in near if recent[index] - floor * weights[index] <= ahead}
    return max([like for like in liking if like[1] in free])[1], Why.YIELDED


def _line_up(
    field: Field, first: int, among: Sequence[int], in_flight: Sequence[int], recent: Sequence[float]
) -> tuple[RouteTarget, ...]:
    """The first one, then the others by their load."""
    targets = field.targets
    if len(among) == 2:
        return targets[first], targets[among[0] if first == among[1] else among[1]]
    others = sorted([(in_flight[index], recent[index], index) for index in among if index != first])
    return (targets[first], *[targets[index] for _, _, index in others])
