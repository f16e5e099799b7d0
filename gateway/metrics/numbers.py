"""Blocks of counters as what they mean: requests by model and target, refusals, what happened to targets. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from gateway.metrics.arena import Name
from gateway.metrics.layout import (
    BETWEEN_TOKENS,
    CAUSES,
    DURATION,
    EJECTION_CELLS,
    FAILURE_CELLS,
    FIRST_TOKEN,
    NUMBER_CELLS,
    OUTCOME_CELLS,
    OUTCOMES,
    QUEUE,
    READMISSIONS,
    REASON_CELLS,
    REASONS,
    REFUSALS,
    REQUESTS,
    SPANS,
    STATUSES,
    TARGET,
    Number,
    SpanFate,
    Times,
)

Label = TypeVar("Label", str, tuple[str, str])


@dataclass(frozen=True, slots=True)
class Histogram:
    """Observed times."""

    buckets: tuple[tuple[str, int], ...]
    """(upper bound in seconds as Prometheus writes it, observations up to it); the last is `+Inf`."""
    sum_s: float

    @property
    def count(self) -> int:
        return self.buckets[-1][1]

    def quantile_s(self, share: float) -> float | None:
        """A share of the observations was at most so long, by straight lines inside buckets; None: there is none."""
        if not self.count:
            return None
        wanted = share * self.count
        before, low_s = 0, 0.0
        for bound, total in self.buckets[:-1]:
            if total >= wanted and total > before:
                return low_s + (float(bound) - low_s) * (wanted - before) / (total - before)
            before, low_s = total, float(bound)
        return low_s


@dataclass(frozen=True, slots=True)
class RequestNumbers:
    """One model at one target; the target is empty for requests that came to none."""

    model: str
    target: str
    outcomes: Mapping[tuple[str, str], int]
    """(class of the status, outcome) -> requests; none is 0."""
    numbers: Mapping[Number, int]
    reasons: Mapping[str, int]
    duration: Histogram
    first_token: Histogram
    between_tokens: Histogram
    queue: Histogram

    @property
    def requests(self) -> int:
        return self.duration.count


@dataclass(frozen=True, slots=True)
class TargetNumbers:
    """What happened to one target, by cause; none is 0."""

    target: str
    failures: Mapping[str, int]
    ejections: Mapping[str, int]
    readmissions: int


@dataclass(frozen=True, slots=True)
class Numbers:
    """All that is counted, in the order of its names."""

    requests: Sequence[RequestNumbers]
    refusals: Sequence[tuple[str, str, int]]
    """(model, the error's code, requests)."""
    targets: Sequence[TargetNumbers]
    spans: Mapping[SpanFate, int]
    """What became of the spans of traces; all of them are here."""


def read_numbers(blocks: Mapping[Name, Sequence[int]]) -> Numbers:
    """Take the blocks of `gateway.metrics.arena.gather` apart."""
    ordered = sorted(blocks.items())
    return Numbers(
        requests=[_read_requests(name, block) for name, block in ordered if name[0] == REQUESTS and any(block)],
        refusals=[(name[1], name[2], block[0]) for name, block in ordered if name[0] == REFUSALS and block[0]],
        targets=[_read_target(name, block) for name, block in ordered if name[0] == TARGET and any(block)],
        spans=dict(zip(SpanFate, blocks.get((SPANS,), [0] * len(SpanFate)), strict=True)),
    )


def _read_requests(name: Name, block: Sequence[int]) -> RequestNumbers:
    pairs = [(status, outcome) for status in STATUSES for outcome in OUTCOMES]
    return RequestNumbers(
        model=name[1],
        target=name[2],
        outcomes=_named(pairs, block, OUTCOME_CELLS),
        numbers={number: block[NUMBER_CELLS + number] for number in Number},
        reasons=_named(REASONS, block, REASON_CELLS),
        duration=_read_times(DURATION, block),
        first_token=_read_times(FIRST_TOKEN, block),
        between_tokens=_read_times(BETWEEN_TOKENS, block),
        queue=_read_times(QUEUE, block),
    )


def _read_target(name: Name, block: Sequence[int]) -> TargetNumbers:
    return TargetNumbers(
        name[1],
        failures=_named(CAUSES, block, FAILURE_CELLS),
        ejections=_named(CAUSES, block, EJECTION_CELLS),
        readmissions=block[READMISSIONS],
    )


def _named(labels: Sequence[Label], block: Sequence[int], begin: int) -> dict[Label, int]:
    return {label: block[begin + index] for index, label in enumerate(labels) if block[begin + index]}


def _read_times(times: Times, block: Sequence[int]) -> Histogram:
    buckets, total = [], 0
    for bound, cell in zip((*times.bounds_s, None), range(times.begin, times.sum), strict=True):
        total += block[cell]
        buckets.append(("+Inf" if bound is None else repr(float(bound)), total))
    return Histogram(tuple(buckets), block[times.sum] / 1e6)
