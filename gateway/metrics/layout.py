"""What stands where in a block of counters: statuses, endings, tokens, and the buckets of times. Pure.

Times are counted in microseconds, in buckets that are not cumulative: adding one is one cell. Whoever reads sums up.
"""

from bisect import bisect_left
from collections.abc import Sequence
from enum import IntEnum

from core.http.verdict import Ended
from gateway.router import Why

REQUESTS = "requests"
"""Block of a model at a target: all that is below."""
REFUSALS = "refusals"
"""Block of a model and the code of an error that the gateway answered: one cell."""
TARGET = "target"
"""Block of a target: its failures, ejections and readmissions."""

SPANS = "spans"
"""Block of what became of the spans of traces: one cell for each `SpanFate`."""


class SpanFate(IntEnum):
    """What became of a span."""

    SENT = 0
    QUEUE_FULL = 1
    REFUSED = 2
    """The collector took it not, by its own word."""
    UNREACHABLE = 3
    """The collector could not be reached, or was busy, too often."""
    ENDED = 4
    """The worker ended, or tracing was turned off, before it could be sent."""


STATUSES = ("none", "1xx", "2xx", "3xx", "4xx", "5xx")
"""By the first digit; none: the client left before."""
OUTCOMES = (*(ended.value for ended in Ended), "refused")
REASONS = tuple(why.value for why in Why)
CAUSES = tuple(ended.value for ended in Ended)


class Number(IntEnum):
    """Plain counters of a block of requests."""

    PROMPT_TOKENS = 0
    CACHED_TOKENS = 1
    COMPLETION_TOKENS = 2
    ESTIMATED_TOKENS = 3
    """Of prompts and completions, those that are estimates."""
    WASTED_TOKENS = 4
    """Of completions, those of answers that came to no end."""
    CANCELLED = 5
    RETRIES = 6


class Times:
    """Cells of one histogram: a bucket for each bound, one for what is longer, and the sum."""

    def __init__(self, begin: int, bounds_s: Sequence[float]) -> None:
        self.begin = begin
        self.bounds_s = tuple(bounds_s)
        self.sum = begin + len(self.bounds_s) + 1
        self.end = self.sum + 1

    def bucket(self, seconds: float) -> int:
        """The cell that counts a time. A time that is a bound belongs to it."""
        return self.begin + bisect_left(self.bounds_s, seconds)


_LONG_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900)

OUTCOME_CELLS = 0
NUMBER_CELLS = OUTCOME_CELLS + len(STATUSES) * len(OUTCOMES)
REASON_CELLS = NUMBER_CELLS + len(Number)
DURATION = Times(REASON_CELLS + len(REASONS), _LONG_S)
FIRST_TOKEN = Times(DURATION.end, (0.005, *_LONG_S))
BETWEEN_TOKENS = Times(FIRST_TOKEN.end, (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1, 5))
QUEUE = Times(BETWEEN_TOKENS.end, (0.001, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 240))
REQUEST_CELLS = QUEUE.end

FAILURE_CELLS = 0
EJECTION_CELLS = FAILURE_CELLS + len(CAUSES)
READMISSIONS = EJECTION_CELLS + len(CAUSES)
TARGET_CELLS = READMISSIONS + 1
