"""The jobs' database for the event loop: one thread, in which everything is done in its order.

Nothing is opened, and no thread begun, before somebody uses a job; a gateway that never has one pays for nothing.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from gateway.jobs.database import JobDatabase

T = TypeVar("T")


class JobStore:
    """See the module."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._database = JobDatabase(directory / "jobs.db")
        self._thread: ThreadPoolExecutor | None = None

    @property
    def exists(self) -> bool:
        """Whether there was ever a job here."""
        return self._database.path.exists()

    async def run(self, work: Callable[[JobDatabase], T]) -> T:
        """Have it done in the thread. Raises: what `work` raises; nothing is half done."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="jobs")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, self._database)

    async def close(self) -> None:
        """After what was begun."""
        thread, self._thread = self._thread, None
        if thread is not None:
            await asyncio.get_running_loop().run_in_executor(thread, self._database.close)
            thread.shutdown(wait=False)
