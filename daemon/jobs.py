"""Long operations that several callers may watch and that go on when they leave: installs and downloads.

The same operation asked for twice at once is one job with two watchers.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine

from core.api import ErrorBody, Progress
from core.errors import BugError, LlmgwError
from core.log import get_logger

Report = Callable[[Progress], None]
Work = Callable[[Report], Awaitable[str]]
"""Does the operation, reports on the way, returns what it made."""

_KEPT_LINES = 500


class Job:
    """One running operation and all that it reported so far."""

    def __init__(self) -> None:
        self._lines: list[Progress] = []
        self._dropped = 0
        self._more = asyncio.Event()
        self.is_over = False

    def report(self, line: Progress) -> None:
        self._lines.append(line)
        if len(self._lines) > _KEPT_LINES:
            del self._lines[0]
            self._dropped += 1
        self.is_over = bool(line.done or line.error)
        more, self._more = self._more, asyncio.Event()
        more.set()

    async def watch(self) -> AsyncIterator[Progress]:
        """Every line from the beginning (of what is kept), until the last one."""
        position = 0
        while True:
            position = max(position, self._dropped)
            while position - self._dropped < len(self._lines):
                yield self._lines[position - self._dropped]
                position += 1
            if self.is_over:
                return
            await self._more.wait()


class Jobs:
    """The operations that are under way, by what they do."""

    def __init__(self, spawn: Callable[[Coroutine[None, None, None]], object]) -> None:
        self._spawn = spawn
        self._running: dict[str, Job] = {}
        self._log = get_logger("daemon.jobs")

    def run(self, key: str, work: Work) -> Job:
        """Begin `work`, or join the job that does it already."""
        job = self._running.get(key)
        if job is None:
            job = self._running[key] = Job()
            self._spawn(self._carry_out(key, job, work))
        return job

    async def _carry_out(self, key: str, job: Job, work: Work) -> None:
        self._log.info("job_started", job=key)
        try:
            made = await work(job.report)
        except LlmgwError as error:
            self._log.warning("job_failed", job=key, code=error.code, error=error.message)
            job.report(_failure(error))
        except Exception as error:  # noqa: BLE001 - the boundary of one job: its watchers must hear of any end
            self._log.error("job_broke", job=key, error=repr(error))
            job.report(_failure(BugError(f"{key}: {error!r}")))
        else:
            self._log.info("job_done", job=key, made=made)
            job.report(Progress(step="done", done=made))
        finally:
            self._running.pop(key, None)
            if not job.is_over:
                job.report(
                    Progress(step="stopped", error=ErrorBody(code="daemon_stopping", message="the daemon stops"))
                )


def _failure(error: LlmgwError) -> Progress:
    return Progress(step="failed", error=ErrorBody(code=error.code, message=error.message, hint=error.hint))
