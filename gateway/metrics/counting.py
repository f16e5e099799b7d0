"""Counts every request at its end, and what happens to targets, in this worker's arena.

This runs for every request, and its cost is part of what a request costs: one look-up and about ten additions. Labels
are bounded: only models that the route table knows have a name here, whatever clients ask for; targets are the table's
own. Where an arena is full (about seven hundred models at targets), all that is new is counted together.
"""

from bisect import bisect_left

from gateway.board import Seat
from gateway.ending import RequestRecord
from gateway.metrics.arena import Arena, Name
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
    REQUEST_CELLS,
    REQUESTS,
    SPANS,
    STATUSES,
    TARGET,
    TARGET_CELLS,
    Number,
    SpanFate,
)

UNKNOWN = "(unknown)"
"""The label of every model that is none of ours."""
OTHER = "(other)"
"""The label of what came when there was no room for more labels."""

_OUTCOME_AT = {outcome: index for index, outcome in enumerate(OUTCOMES)}
_REASON_AT = {reason: REASON_CELLS + index for index, reason in enumerate(REASONS)}
_CAUSE_AT = {cause: index for index, cause in enumerate(CAUSES)}
_PROMPT = NUMBER_CELLS + Number.PROMPT_TOKENS
_COMPLETION = NUMBER_CELLS + Number.COMPLETION_TOKENS
_AT_ONCE = QUEUE.bucket(0.0)
_DURATION_AT, _DURATION_S, _DURATION_SUM = DURATION.begin, DURATION.bounds_s, DURATION.sum
_MOST_KINDS = 4096

_Kind = tuple[int, int, int]
"""Where it is counted: the first cell of its block, the cell of its outcome, and that of its reason."""


class Counting:
    """A listener of `gateway.ending` and a witness of `gateway.target_health`; one for each worker."""

    def __init__(self, seat: Seat) -> None:
        self._arena = Arena(seat)
        self._cells = self._arena.cells
        self._kinds: dict[tuple[str, str, int, str, str], _Kind] = {}
        """Of what is the same from one request to the next: model, target, hundreds of the status, end and reason."""
        # Made now, while there is room.
        self._other = {
            (REQUESTS, REQUEST_CELLS): self._arena.block((REQUESTS, OTHER, OTHER), REQUEST_CELLS),
            (REFUSALS, 1): self._arena.block((REFUSALS, OTHER, OTHER), 1),
            (TARGET, TARGET_CELLS): self._arena.block((TARGET, OTHER), TARGET_CELLS),
            (SPANS, len(SpanFate)): self._arena.block((SPANS,), len(SpanFate)),
        }

    def request_ended(self, record: RequestRecord) -> None:
        """Count it."""
        cells, why = self._cells, record.why
        kind = (record.served, record.target, record.status // 100, record.ended, why)
        found = self._kinds.get(kind)
        if found is None:
            found = self._find_kind(*kind)
        block, outcome, reason = found
        cells[outcome] += 1
        took_s = record.ended_s - record.started_s
        # `DURATION.bucket`, written out.
        cells[block + _DURATION_AT + bisect_left(_DURATION_S, took_s)] += 1
        cells[block + _DURATION_SUM] += int(took_s * 1e6)
        if why:
            cells[reason] += 1
            queued_s = record.queued_s
            if queued_s:
                cells[block + QUEUE.bucket(queued_s)] += 1
                cells[block + QUEUE.sum] += int(queued_s * 1e6)
            else:
                cells[block + _AT_ONCE] += 1
        if record.prompt_tokens:
            cells[block + _PROMPT] += record.prompt_tokens
        if record.completion_tokens:
            cells[block + _COMPLETION] += record.completion_tokens
            if record.stream and record.first_data_s:
                self._count_stream(block, record)
        if record.code or record.attempts > 1 or record.ended != "complete" or record.cached_tokens:
            self._count_unusual(block, record)
        if record.is_estimated:
            cells[block + NUMBER_CELLS + Number.ESTIMATED_TOKENS] += record.prompt_tokens + record.completion_tokens

    def _count_stream(self, block: int, record: RequestRecord) -> None:
        cells = self._cells
        first_s = record.first_data_s
        cells[block + FIRST_TOKEN.bucket(first_s)] += 1
        cells[block + FIRST_TOKEN.sum] += int(first_s * 1e6)
        gaps = record.completion_tokens - 1
        if gaps > 0:
            # One observation for each answer, and not for each token: that is what a client feels of it.
            between_s = max(record.relay_s - first_s, 0.0) / gaps
            cells[block + BETWEEN_TOKENS.bucket(between_s)] += 1
            cells[block + BETWEEN_TOKENS.sum] += int(between_s * 1e6)

    def _count_unusual(self, block: int, record: RequestRecord) -> None:
        cells = self._cells
        cells[block + NUMBER_CELLS + Number.CACHED_TOKENS] += record.cached_tokens
        if record.attempts > 1:
            cells[block + NUMBER_CELLS + Number.RETRIES] += record.attempts - 1
        if record.ended == "client_gone":
            cells[block + NUMBER_CELLS + Number.CANCELLED] += 1
        if record.is_cut_short:
            cells[block + NUMBER_CELLS + Number.WASTED_TOKENS] += record.completion_tokens
        if record.code:
            refusals = self._find((REFUSALS, record.served or UNKNOWN, record.code), 1)
            cells[refusals] += 1

    def _find_kind(self, served: str, target: str, status: int, ended: str, why: str) -> _Kind:
        block = self._find((REQUESTS, served or UNKNOWN, target), REQUEST_CELLS)
        row = OUTCOME_CELLS + (status if 0 <= status < len(STATUSES) else 5) * len(OUTCOMES)
        outcome = block + row + _OUTCOME_AT.get(ended, 0)
        if len(self._kinds) >= _MOST_KINDS:
            self._kinds.clear()
        found = self._kinds[served, target, status, ended, why] = (block, outcome, block + _REASON_AT.get(why, 0))
        return found

    def _find(self, name: Name, size: int) -> int:
        found = self._arena.block(name, size)
        if found is None:
            found = self._other[name[0], size]
        if found is None:
            raise RuntimeError("an arena without room for its first blocks")
        return found

    def count_spans(self, fate: SpanFate, count: int) -> None:
        """So many spans came to this."""
        self._cells[self._find((SPANS,), len(SpanFate)) + fate] += count

    # Targets

    def failed(self, target_id: str, because: str) -> None:
        self._add_to_target(target_id, FAILURE_CELLS + _CAUSE_AT[because])

    def ejected(self, target_id: str, because: str, for_s: float, detail: str) -> None:
        self._add_to_target(target_id, EJECTION_CELLS + _CAUSE_AT[because])

    def readmitted(self, target_id: str) -> None:
        self._add_to_target(target_id, READMISSIONS)

    def _add_to_target(self, target_id: str, cell: int) -> None:
        self._cells[self._find((TARGET, target_id), TARGET_CELLS) + cell] += 1
