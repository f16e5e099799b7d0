"""Sums up what has ended at this worker since its last report to the daemon, by day, key and model.

A listener of `gateway.ending`: this runs for every request.
"""

import asyncio

from core.clock import Clock
from core.usage import MOST_ROWS, UsageReport, UsageRow, day_of
from gateway.ending import RequestRecord

_DAY_S = 86400

_Key = tuple[int, str, str]
"""Days since the Unix epoch, the key's name, the model's id."""


class Meter:
    """One worker's. `source` names it, and this life of it."""

    def __init__(self, source: str, clock: Clock) -> None:
        self.changed = asyncio.Event()
        """Set while there is something to report."""
        self._source = source
        self._clock = clock
        self._sums: dict[_Key, list[int]] = {}
        self._sequence = 0

    def request_ended(self, record: RequestRecord) -> None:
        """Count a request that an engine was asked for."""
        if not record.target or not record.served:
            return
        key = (int(self._clock.wall_s()) // _DAY_S, record.key, record.served)
        sums = self._sums.get(key)
        if sums is None:
            sums = self._sums[key] = [0, 0, 0, 0, 0, 0, 0, 0]
            self.changed.set()
        prompt, completion = record.prompt_tokens, record.completion_tokens
        sums[0] += 1
        sums[3] += prompt
        sums[4] += record.cached_tokens
        sums[5] += completion
        if record.is_estimated:
            sums[2] += 1
            sums[6] += prompt + completion
        if record.ended != "complete" and record.is_cut_short:
            sums[1] += 1
            sums[7] += prompt + completion

    def take(self) -> list[UsageReport]:
        """What has been counted, as numbered reports that are the caller's from now on."""
        rows = [_row(key, sums) for key, sums in self._sums.items()]
        self._sums.clear()
        self.changed.clear()
        reports = []
        for begin in range(0, len(rows), MOST_ROWS):
            self._sequence += 1
            part = rows[begin : begin + MOST_ROWS]
            reports.append(UsageReport(source=self._source, sequence=self._sequence, rows=part))
        return reports


def _row(key: _Key, sums: list[int]) -> UsageRow:
    day, name, model = key
    requests, cut_short, estimated, prompt, cached, completion, estimated_tokens, wasted = sums
    return UsageRow(
        day=day_of(day * _DAY_S).isoformat(),
        key=name,
        model=model,
        requests=requests,
        cut_short=cut_short,
        estimated=estimated,
        prompt_tokens=prompt,
        cached_tokens=cached,
        completion_tokens=completion,
        estimated_tokens=estimated_tokens,
        wasted_tokens=wasted,
    )
