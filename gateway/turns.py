"""Who may have the next slot of a target: limits, classes of requests, and turns. Pure.

A target works on `slots` requests at once, over all workers. Requests are `standard` or `interactive`. Some slots may
be reserved for interactive ones; beyond those, an interactive request may overtake standard ones that came earlier,
but at most `MOST_OVERTAKINGS` times in a row while any of them waits. Within a class, first come is first served.

How many slots each class has taken, and how many requests wait, is one number, to which one request adds `STANDARD`,
`INTERACTIVE` or `WAITER`: one sum over all workers tells everything that a usual request must know.
"""

from typing import NamedTuple

from core.api import RouteTarget

STANDARD = 1
INTERACTIVE = 1 << 20
WAITER = 1 << 40
_BITS = (1 << 20) - 1

MOST_OVERTAKINGS = 4
_LEAST_QUEUE = 8
_QUEUE_PER_SLOT = 4


class Limits(NamedTuple):
    """What a target may be asked to do at once."""

    slots: int = 1
    reserved: int = 0
    """Of the slots, for interactive requests only; always less than all."""
    queue: int = _LEAST_QUEUE
    """Requests that may wait, over all workers."""
    queue_timeout_s: float | None = 240.0
    retry_after_s: int = 2


class Standing(NamedTuple):
    """How things stand at a target, over all workers. Stamps are times of arrival; 0: nobody waits."""

    counts: int
    oldest_standard: int = 0
    oldest_interactive: int = 0
    overtakings: int = 0
    """In a row, since a standard request was let in last."""


class Turn(NamedTuple):
    """The request whose turn it is: the one of this class that came at this time."""

    unit: int
    stamp: int
    overtakes: bool = False


def limits_of(target: RouteTarget) -> Limits:
    """What the route table says."""
    slots = max(target.max_concurrency, 1)
    queue = target.max_queued_requests
    return Limits(
        slots=slots,
        reserved=min(max(target.interactive_reserved_slots, 0), slots - 1),
        queue=max(_LEAST_QUEUE, _QUEUE_PER_SLOT * slots) if queue is None else queue,
        queue_timeout_s=target.queue_timeout_ms / 1000 or None,
        retry_after_s=target.queue_retry_after_seconds,
    )


def count(counts: int) -> int:
    """Slots that are taken, by both classes."""
    return (counts & _BITS) + (counts >> 20 & _BITS)


def count_waiting(counts: int) -> int:
    """Requests that wait."""
    return counts >> 40


def fits(counts: int, unit: int, limits: Limits) -> bool:
    """Whether `counts`, which include one request of this class that just came, are within the limits."""
    standard = counts & _BITS
    if standard + (counts >> 20 & _BITS) > limits.slots:
        return False
    return unit != STANDARD or standard <= limits.slots - limits.reserved


def next_turn(standing: Standing, limits: Limits) -> Turn | None:
    """Whose turn it is; None when nobody who waits may have a slot now."""
    standard, interactive = standing.oldest_standard, standing.oldest_interactive
    may_standard = standard > 0 and fits(standing.counts + STANDARD, STANDARD, limits)
    may_interactive = interactive > 0 and fits(standing.counts + INTERACTIVE, INTERACTIVE, limits)
    if may_interactive:
        # A slot that no standard request may have is no overtaking.
        overtakes = may_standard and standard < interactive
        if not overtakes or standing.overtakings < MOST_OVERTAKINGS:
            return Turn(INTERACTIVE, interactive, overtakes)
    return Turn(STANDARD, standard) if may_standard else None
