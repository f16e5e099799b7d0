"""When a target is out of rotation, and how it comes back. Pure.

A target that cannot be reached, or is silent, is out at once; one that answers 5xx is out when it did so `STREAK` times
in a row. It stays out for `COOLDOWN_S`. Then it *returns*: one request at a time is sent there, and when one is
answered all others follow; when it fails, the next cool-down is twice as long, up to `LONGEST_S`. An engine that says
itself that it is full (429, 503) *rests* for as long as it says: that is back-pressure and no failure.

What is held against a target is one number, its *mark*, that any worker may write to its own cell of the board: the
largest over all workers counts. The largest mark that was *forgiven* ends all that are not larger. So a mark counts up
first, and carries in its lower bits until when, and the how manieth cool-down in a row it is.
"""

from enum import IntEnum, StrEnum

from core.http.verdict import Ended

COOLDOWN_S = 5.0
LONGEST_S = 60.0
STREAK = 3
REST_S = 1.0
"""Of an engine that is full and does not say for how long."""
LONGEST_REST_S = 60.0

_LONGEST_WORDS = 300
_LEVEL_BITS = 4
_TIME_BITS = 36  # hundredths of a second since the machine began: 21 years
_LEVELS = (1 << _LEVEL_BITS) - 1
_TIMES = (1 << _TIME_BITS) - 1
_MOST_COUNT = (1 << 63 - _LEVEL_BITS - _TIME_BITS) - 1


class Standing(IntEnum):
    """How a target stands; the order is the order in which they are asked."""

    GOOD = 0
    RESTING = 1
    """It is full, or says nothing: it is asked when no other can be."""
    RETURNING = 2
    """Its cool-down is over, and nobody knows yet how it is."""
    OUT = 3


class Blame(StrEnum):
    """What an ending says of the target."""

    NONE = "none"
    REST = "rest"
    STREAK = "streak"
    OUT = "out"


_BLAME = {
    Ended.CONNECT_FAILED: Blame.OUT,
    Ended.CLOSED_EARLY: Blame.OUT,
    Ended.MALFORMED: Blame.OUT,
    Ended.FIRST_BYTE_TIMEOUT: Blame.OUT,
    Ended.SERVER_ERROR: Blame.STREAK,
    Ended.UNAUTHORIZED: Blame.STREAK,
    Ended.UPSTREAM_BROKEN: Blame.STREAK,
    Ended.BETWEEN_BYTES_TIMEOUT: Blame.STREAK,
    Ended.BUSY: Blame.REST,
}


def blame_for(ended: Ended) -> Blame:
    """What follows for the target; a client's own mistakes and its leaving say nothing."""
    return _BLAME.get(ended, Blame.NONE)


def until_s_of(mark: int) -> float:
    """When the cool-down ends; monotonic."""
    return (mark >> _LEVEL_BITS & _TIMES) / 100


def level_of(mark: int) -> int:
    """How many cool-downs in a row went before."""
    return mark & _LEVELS


def next_mark(mark: int, forgiven: int, now_s: float) -> int:
    """The mark after a failure; the same one where the target is out already, so that the failures of requests which
    were under way together are one.
    """
    level = 0
    if mark > forgiven:
        if now_s < until_s_of(mark):
            return mark
        level = min(level_of(mark) + 1, _LEVELS)
    lasts_s = min(COOLDOWN_S * 2**level, LONGEST_S)
    count = min((max(mark, forgiven) >> _LEVEL_BITS + _TIME_BITS) + 1, _MOST_COUNT)
    until = min(int((now_s + lasts_s) * 100), _TIMES)
    return count << _LEVEL_BITS + _TIME_BITS | until << _LEVEL_BITS | level


def judge(mark: int, forgiven: int, resting_until_s: float, now_s: float, *, is_probed: bool) -> Standing:
    """How a target stands, by what all workers wrote. `is_probed`: a request is finding out already."""
    if mark > forgiven:
        return Standing.OUT if is_probed or now_s < until_s_of(mark) else Standing.RETURNING
    return Standing.RESTING if now_s < resting_until_s else Standing.GOOD


def rest_s(retry_after_s: float | None) -> float:
    """How long an engine rests that said this in its `Retry-After`."""
    return REST_S if retry_after_s is None else min(max(retry_after_s, 0.0), LONGEST_REST_S)


def describe_failure(ended: Ended, detail: str, status: int | None) -> str:
    """Why a request failed at a target, for whoever runs the node."""
    words = ended.value.replace("_", " ") + (f", status {status}" if status is not None else "")
    return f"{words}: {detail}"[:_LONGEST_WORDS] if detail else words
