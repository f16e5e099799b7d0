"""Owner of the ledger: takes the workers' reports, answers what was used, and writes the days.

A report is answered when its day has been written, so that a worker forgets nothing that a power loss could take; the
reports that come while a day is being written are written together. A disk that cannot be written stops nobody: it is
told once, the counts stay in memory, and the next report tries again.
"""

import asyncio
from collections.abc import Callable, Collection
from datetime import date, timedelta

from core.clock import Clock
from core.errors import UsageError
from core.files import StorageError
from core.log import EventLogger
from core.usage import COUNTS, UsageList, UsageReport, UsageRow, add_rows, day_of, sum_rows
from daemon.usage.day import Day
from daemon.usage.store import DayStore, is_day

DEFAULT_DAYS = 30
"""How many days a question without dates is about."""
_LONGEST_NAME = 512
_LARGEST_COUNT = 1 << 40
"""In one row of a report; thousands of such still fit into what JSON's readers can hold."""


class Ledger:
    """One node's. `retention_days` says how many days are kept, at this moment."""

    def __init__(self, store: DayStore, clock: Clock, retention_days: Callable[[], int], log: EventLogger) -> None:
        self._store = store
        self._clock = clock
        self._retention_days = retention_days
        self._log = log
        self._days: dict[str, Day] = {}
        self._unwritten: set[str] = set()
        self._being_written: set[str] = set()
        self._writing = asyncio.Lock()
        self._waiting: list[asyncio.Future[None]] = []
        self._wake = asyncio.Event()
        self._reading = asyncio.Lock()
        self._is_failing = False
        self._pruned_on = ""

    async def run(self) -> None:
        """Write what has changed, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self.write()

    async def take(self, report: UsageReport) -> None:
        """Count a report, once however often it comes; returns when it is on disk, or cannot be.

        Raises: UsageError for what no gateway of ours would send.
        """
        check_report(report)
        by_day: dict[str, list[UsageRow]] = {}
        for row in report.rows:
            by_day.setdefault(self._judge_day(row.day), []).append(row)
        for name, rows in sorted(by_day.items()):
            day = await self._day(name)
            if day.add(report, rows):
                self._unwritten.add(name)
        if not self._unwritten:
            return
        written = asyncio.get_running_loop().create_future()
        self._waiting.append(written)
        self._wake.set()
        await written

    async def list(self, *, first: str, last: str, key: str | None, model: str, by: Collection[str]) -> UsageList:
        """What was used from one day to another, both included; empty: the last thirty days. `key` None: all keys.

        Raises: UsageError.
        """
        begin, end = self._judge_span(first, last)
        names = await asyncio.to_thread(self._store.names)
        wanted = [n for n in sorted({*names, *self._days}) if begin.isoformat() <= n <= end.isoformat()]
        rows = [
            row
            for name in wanted
            for row in (await self._day(name)).rows
            if (key is None or row.key == key) and (not model or row.model == model)
        ]
        self._forget_idle()
        sums = sum_rows(rows, by)
        total = UsageRow()
        for row in sums:
            total = add_rows(total, row)
        return UsageList(from_=begin.isoformat(), to=end.isoformat(), by=list(by), rows=sums, total=total)

    async def write(self) -> None:
        """Write the days that have changed, and answer who waits for it. Also what a daemon does last."""
        async with self._writing:
            waiting, self._waiting = self._waiting, []
            self._being_written, self._unwritten = self._unwritten, set()
            rendered = {name: self._days[name].render() for name in self._being_written}
            try:
                await asyncio.to_thread(self._write_all, rendered, self._prune_before())
                self._is_failing = False
            except StorageError as error:
                self._unwritten |= self._being_written
                if not self._is_failing:
                    self._log.error("usage_not_saved", error=error.message)
                self._is_failing = True
            finally:
                self._being_written = set()
                for future in waiting:
                    if not future.done():
                        future.set_result(None)
            self._forget_idle()

    def _write_all(self, rendered: dict[str, bytes], prune_before: str) -> None:
        for name, data in rendered.items():
            self._store.write(name, data)
        if prune_before:
            self._store.remove_before(prune_before)

    def _prune_before(self) -> str:
        """The first day to keep, once a day; else empty."""
        today = day_of(self._clock.wall_s())
        if self._pruned_on == today.isoformat():
            return ""
        self._pruned_on = today.isoformat()
        return (today - timedelta(days=self._retention_days() - 1)).isoformat()

    async def _day(self, name: str) -> Day:
        async with self._reading:
            day = self._days.get(name)
            is_kept = name in self._unwritten or name in self._being_written or self._store.has(name)
            # A day whose file was taken away (`llmgw wipe`, an operator) is not to come back with the next report.
            if day is None or not is_kept:
                try:
                    day = await asyncio.to_thread(self._store.read, name)
                except StorageError as error:
                    self._log.error("usage_day_unreadable", error=error.message)
                    day = Day(name)
                self._days[name] = day
            return day

    def _forget_idle(self) -> None:
        """Keep in memory what may still grow, and what is not on disk."""
        today = day_of(self._clock.wall_s())
        kept = {today.isoformat(), (today - timedelta(days=1)).isoformat(), *self._unwritten, *self._being_written}
        for name in [name for name in self._days if name not in kept]:
            del self._days[name]

    def _judge_day(self, name: str) -> str:
        """A day that cannot be, by our clock, is today: a worker's clock may have been set in between."""
        today = day_of(self._clock.wall_s())
        oldest = today - timedelta(days=self._retention_days() - 1)
        is_possible = oldest.isoformat() <= name <= (today + timedelta(days=1)).isoformat()
        return name if is_possible else today.isoformat()

    def _judge_span(self, first: str, last: str) -> tuple[date, date]:
        for name in (first, last):
            if name and not is_day(name):
                raise UsageError(f"{name[:50]!r} is not a day", hint="a day is written 2026-01-31, in UTC")
        end = date.fromisoformat(last) if last else day_of(self._clock.wall_s())
        begin = date.fromisoformat(first) if first else end - timedelta(days=DEFAULT_DAYS - 1)
        if begin > end:
            raise UsageError(f"the first day, {begin}, is after the last, {end}", hint="from and to are both included")
        return begin, end


def check_report(report: UsageReport) -> None:
    """Raises: UsageError."""
    names = [report.source, *(name for row in report.rows for name in (row.key, row.model))]
    counts = [value for row in report.rows for value in (getattr(row, name) for name in COUNTS)]
    if report.sequence < 1 or not report.source or any(len(name) > _LONGEST_NAME for name in names):
        raise UsageError("the report of usage has no source or number, or a name that is too long")
    if not all(0 <= count <= _LARGEST_COUNT for count in counts) or not all(is_day(row.day) for row in report.rows):
        raise UsageError("the report of usage has a day or a count that cannot be")
