"""Hands what the meter counted to the daemon, once a second while there is anything, and forgets it when it is kept.

While the daemon is away the meter goes on; the report that could not be sent is sent again under its number, so that
one which arrived, though its answer did not, is not counted twice. What is left when a worker ends goes to the spool.
"""

import asyncio
from collections import deque
from pathlib import Path

from core.client import DaemonClient
from core.errors import LlmgwError, UsageError
from core.files import StorageError
from core.log import EventLogger
from core.tasks import Backoff
from core.usage import REPORT_EVERY_S, UsageReport
from gateway.usage.meter import Meter
from gateway.usage.spool import Spool

_LAST_WORD_S = 2.0
"""How long the end of a worker may take to hand over the rest."""


class UsageReporter:
    """Sends the reports of one worker for as long as it runs."""

    def __init__(self, daemon: DaemonClient, meter: Meter, spool: Spool, source: str, log: EventLogger) -> None:
        self._daemon = daemon
        self._meter = meter
        self._spool = spool
        self._source = source
        self._log = log
        self._queue: deque[UsageReport] = deque()
        self._has_looked = False
        self._left_behind: dict[Path, int] = {}
        """Files of the spool, and how many of their reports are still in the queue."""

    async def run(self) -> None:
        """Report until cancelled."""
        if not self._has_looked:
            self._has_looked = True
            await self._collect_left_behind()
        backoff = Backoff(REPORT_EVERY_S, 10.0)
        while True:
            if not self._queue:
                await self._meter.changed.wait()
                # A second's requests are one report.
                await asyncio.sleep(REPORT_EVERY_S)
                self._queue.extend(self._meter.take())
            try:
                await self._send_all()
                backoff.reset()
            except LlmgwError:
                await asyncio.sleep(backoff.next_s())

    async def close(self) -> None:
        """Hand over what is left: to the daemon, or else to the next worker."""
        for path in [path for path, left in self._left_behind.items() if left <= 0]:
            await self._remove(path)
        self._queue.extend(self._meter.take())
        try:
            async with asyncio.timeout(_LAST_WORD_S):
                await self._send_all()
        except (LlmgwError, TimeoutError):
            pass
        if not self._queue:
            return
        try:
            await asyncio.to_thread(self._spool.write, self._source, list(self._queue))
        except StorageError as error:
            self._log.error("usage_lost", reports=len(self._queue), error=error.message)

    async def _collect_left_behind(self) -> None:
        try:
            found = await asyncio.to_thread(self._spool.read)
        except StorageError as error:
            self._log.warning("usage_left_behind_unreadable", error=error.message)
            return
        for path, reports in found.items():
            self._queue.extend(reports)
            self._left_behind[path] = len(reports)

    async def _send_all(self) -> None:
        """Raises: LlmgwError when the daemon could not be told."""
        while self._queue:
            try:
                await self._daemon.report_usage(self._queue[0])
            except UsageError as error:
                self._log.error("usage_report_refused", error=error.message)
            self._queue.popleft()
            await self._note_sent()

    async def _note_sent(self) -> None:
        """Reports that were left behind come first, in the order of their files."""
        for path, left in self._left_behind.items():
            self._left_behind[path] = left - 1
            if left <= 1:
                await self._remove(path)
            return

    async def _remove(self, path: Path) -> None:
        """A file of which all was sent. Who is interrupted here does it again at the end."""
        try:
            await asyncio.to_thread(self._spool.remove, path)
        except StorageError as error:
            self._log.warning("usage_left_behind_not_removed", error=error.message)
        del self._left_behind[path]
