"""Keeps callers' files within what is allowed: asked before anything is brought, and looking by itself.

The disk is read at the beginning of every question, by one thread at a time; what was read a moment ago will do for
prompts, whose results nobody knows beforehand. Uploads under way count before they are on the disk.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from core.errors import LlmgwError
from core.log import EventLogger
from engines.gates.comfyui.allowance import (
    Allowance,
    Busy,
    FilesFull,
    find_overrunning,
    judge_room,
    plan_removals,
    used_by,
)
from engines.gates.comfyui.desk import Desk
from engines.gates.comfyui.jobs import JobError
from engines.gates.comfyui.stock import Kept, Stock, read_stock, remove_empty_folders, remove_file

_FRESH_S = 2.0
_BUSY_LOOK_S = 2.0
_IDLE_LOOK_S = 600.0
_TOO_MUCH = JobError("files_over_limit", "the workflow wrote more than you may keep")


class Shelf:
    """See the module. `run` looks until cancelled."""

    def __init__(
        self, base: Path, allowance: Allowance, desk: Desk, log: EventLogger, clock: Callable[[], float] = time.time
    ) -> None:
        """`clock`: the wall clock, which files are dated by."""
        self.allowance = allowance
        self._base = base
        self._desk = desk
        self._log = log
        self._clock = clock
        self._lock = asyncio.Lock()
        self._stock: Stock | None = None
        self._read_s = 0.0
        self._coming: Counter[str] = Counter()

    async def admit_prompt(self, caller: str) -> None:
        """Raises: FilesOverLimit, FilesFull, StorageError."""
        await self._admit(caller, 0, _FRESH_S)

    @contextlib.asynccontextmanager
    async def admit_upload(self, caller: str, size_bytes: int) -> AsyncIterator[None]:
        """Room for a file while it is written. Raises: FilesOverLimit, FilesFull, StorageError."""
        await self._admit(caller, max(size_bytes, 1), 0.0)
        self._coming[caller] += size_bytes
        try:
            yield
        finally:
            self._coming[caller] -= size_bytes
            self._stock = None

    async def list_of(self, caller: str) -> tuple[int, list[Kept]]:
        """Bytes of a caller's files, and the files, newest first. Raises: StorageError."""
        stock, busy = await self._look(0.0), self._busy()
        own = [file for file in stock.files if busy.owner(file) == caller]
        return used_by(stock, caller, busy), sorted(own, key=lambda file: -file.changed_s)

    async def remove(self, file: Kept) -> bool:
        """Whether there was such a file. Raises: StorageError."""
        self._stock = None
        return await asyncio.to_thread(remove_file, self._base, file)

    async def run(self) -> None:
        """Make room, and end what writes too much, until cancelled."""
        while True:
            try:
                await self.tidy()
            except LlmgwError as error:
                self._log.warning("files_not_tidied", code=error.code, error=error.message)
            waiting = asyncio.ensure_future(self._desk.until_busy())
            try:
                await asyncio.wait({waiting}, timeout=_IDLE_LOOK_S)
                await asyncio.sleep(_BUSY_LOOK_S)
            finally:
                waiting.cancel()

    async def tidy(self, room_bytes: int = 0) -> None:
        """One look at everything, so that there is so much room. Raises: StorageError, as `Desk.stop`."""
        stock, busy = await self._look(0.0), self._busy()
        going = plan_removals(stock, busy, self.allowance, self._clock(), room_bytes)
        if going:
            self._stock = None
            await asyncio.to_thread(self._remove, going)
            self._log.info("files_removed", count=len(going), size_bytes=sum(file.size_bytes for file in going))
        over = find_overrunning(stock, busy.since, busy, self.allowance)
        # The last first: what waits would begin, and might end, once that which runs was stopped.
        for job in reversed(self._desk.open_jobs()):
            if job.record.caller in over and job.stopped_for is None:
                self._log.warning("prompt_writes_too_much", prompt=job.id, caller=job.record.caller)
                await self._desk.stop(job, _TOO_MUCH)

    def _remove(self, going: list[Kept]) -> None:
        for file in going:
            remove_file(self._base, file)
        remove_empty_folders(self._base, self._clock())

    async def _admit(self, caller: str, more: int, age_s: float) -> None:
        try:
            self._judge(await self._look(age_s), caller, more)
        except FilesFull:
            await self.tidy(sum(self._coming.values()) + more)
            self._judge(await self._look(0.0), caller, more)

    def _judge(self, stock: Stock, caller: str, more: int) -> None:
        judge_room(stock, caller, self._busy(), self.allowance, coming=self._coming[caller], more=more)

    def _busy(self) -> Busy:
        return Busy(self._desk.open_since(), self._desk.temporary_owners())

    async def _look(self, age_s: float) -> Stock:
        asked_s = time.monotonic()
        async with self._lock:
            # Whoever waited here for another's look that began later has what it asked for.
            if self._stock is None or self._read_s < asked_s - age_s:
                began_s = time.monotonic()
                stock = await asyncio.to_thread(read_stock, self._base)
                self._stock, self._read_s = stock, began_s
                return stock
            return self._stock
