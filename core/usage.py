"""What requests cost, in tokens: wire messages, and the arithmetic on them. Pure.

    POST /v1/usage                              UsageReport -> UsageAccepted
    GET  /v1/usage?from=&to=&key=&model=&by=    -> UsageList

Each worker of the gateway reports what has ended since its last report; the daemon keeps the sums, a file per day.
Reports of one worker are numbered, and one that comes again is counted once. Days are those of UTC.
"""

from collections.abc import Collection, Iterable
from datetime import UTC, date, datetime

import msgspec

from core.message import Message

REPORT_EVERY_S = 1.0
MOST_ROWS = 1000
"""In one report."""
DIMENSIONS = ("day", "key", "model")
"""By which usage can be listed."""


class UsageRow(Message, frozen=True, kw_only=True):
    """Sums over some requests. A name that is empty in a list means all of them, but for `key`: see there."""

    day: str = ""
    """`YYYY-MM-DD`."""
    key: str = ""
    """The key's name; empty: requests without a key, where that is allowed."""
    model: str = ""
    """The model's id."""
    requests: int = 0
    """That were sent to an engine."""
    cut_short: int = 0
    """Of these, those that came to no end: the client left, or the engine broke."""
    estimated: int = 0
    """Of these, those whose tokens are an estimate: cut short, or the engine does not say."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Of the prompt tokens, those that the engine says it had in its cache."""
    completion_tokens: int = 0
    estimated_tokens: int = 0
    """Prompt and completion tokens of the estimated requests; part of the sums above."""
    wasted_tokens: int = 0
    """Prompt and completion tokens of the requests that were cut short; part of the sums above."""


class UsageReport(Message, frozen=True, kw_only=True):
    """What ended at one worker since its last report."""

    source: str
    """Names the worker, and this life of it."""
    sequence: int
    """1 for its first report, and one more for each that follows."""
    rows: list[UsageRow] = []


class UsageAccepted(Message, frozen=True, kw_only=True):
    sequence: int


class UsageList(Message, frozen=True, kw_only=True):
    """What `llmgw usage` shows."""

    from_: str = msgspec.field(name="from")
    """The first day, inclusive."""
    to: str
    """The last day, inclusive."""
    by: list[str] = []
    """The dimensions that rows have; the others are summed up."""
    rows: list[UsageRow] = []
    total: UsageRow = UsageRow()


COUNTS = tuple(name for name in UsageRow.__struct_fields__ if name not in DIMENSIONS)


def add_rows(one: UsageRow, other: UsageRow) -> UsageRow:
    """The sum, under the names of the first."""
    return msgspec.structs.replace(one, **{name: getattr(one, name) + getattr(other, name) for name in COUNTS})


def sum_rows(rows: Iterable[UsageRow], by: Collection[str]) -> list[UsageRow]:
    """The rows summed up to one for each value of the dimensions `by`, sorted by these."""
    sums: dict[tuple[str, ...], UsageRow] = {}
    for row in rows:
        names = {name: getattr(row, name) if name in by else "" for name in DIMENSIONS}
        key = tuple(names.values())
        known = sums.get(key)
        sums[key] = add_rows(known, row) if known is not None else msgspec.structs.replace(row, **names)
    return [sums[key] for key in sorted(sums)]


def day_of(wall_s: float) -> date:
    """The day of a time (seconds since the Unix epoch)."""
    return datetime.fromtimestamp(wall_s, UTC).date()
