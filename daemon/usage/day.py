"""One day of the ledger: sums by key and model, and how far each worker's reports are in them. Pure.

The sums and the numbers of the reports that they hold are in one file, written as one: so whatever happens between a
report and its answer, the report is in both or in neither, and when it comes again it is known.
"""

from collections.abc import Iterable

import msgspec

from core.usage import UsageReport, UsageRow, add_rows

MOST_ROWS = 10_000
"""Pairs of key and model in a day; what comes beyond them is summed up under `OTHERS`."""
OTHERS = "(others)"
_MOST_SOURCES = 1000
"""Workers whose numbers are remembered; the one that was silent for longest is forgotten first."""


class DayFile(msgspec.Struct, frozen=True, rename="camel"):
    """A day as it is stored."""

    rows: list[UsageRow]
    sources: dict[str, int]
    """Worker -> its last report, in the order of their coming."""


class Day:
    """A day as it grows."""

    def __init__(self, name: str, stored: DayFile | None = None) -> None:
        self.name = name
        self._rows = {(row.key, row.model): row for row in stored.rows} if stored is not None else {}
        self._sources = dict(stored.sources) if stored is not None else {}

    def add(self, report: UsageReport, rows: Iterable[UsageRow]) -> bool:
        """Count a report's rows of this day; False: they are counted already."""
        if self._sources.get(report.source, 0) >= report.sequence:
            return False
        self._sources.pop(report.source, None)
        self._sources[report.source] = report.sequence
        while len(self._sources) > _MOST_SOURCES:
            del self._sources[next(iter(self._sources))]
        for row in rows:
            pair = (row.key, row.model)
            if pair not in self._rows and len(self._rows) >= MOST_ROWS:
                pair = (OTHERS, OTHERS)
            known = self._rows.get(pair) or UsageRow(day=self.name, key=pair[0], model=pair[1])
            self._rows[pair] = add_rows(known, row)
        return True

    @property
    def rows(self) -> list[UsageRow]:
        return list(self._rows.values())

    def render(self) -> bytes:
        """What is stored."""
        return msgspec.json.encode(DayFile(self.rows, self._sources))


def parse_day(name: str, data: bytes) -> Day:
    """Raises: ValueError for what is no day of ours."""
    try:
        return Day(name, msgspec.json.decode(data, type=DayFile))
    except RecursionError:
        raise ValueError("nested too deeply") from None
