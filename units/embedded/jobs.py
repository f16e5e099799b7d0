"""A unit's pending orders: at most one to start and one to stop, shared by everybody who asked."""

import asyncio
from enum import StrEnum


class JobResult(StrEnum):
    """systemd's words for how a job ended."""

    DONE = "done"
    FAILED = "failed"
    CANCELED = "canceled"
    DEPENDENCY = "dependency"


Job = asyncio.Future[JobResult]


class Jobs:
    """Futures that end when the unit has come to where it was ordered, or cannot. They never raise."""

    def __init__(self) -> None:
        self.start: Job | None = None
        self.stop: Job | None = None

    def open_start(self) -> Job:
        self.start = self.start or asyncio.get_running_loop().create_future()
        return self.start

    def open_stop(self) -> Job:
        self.stop = self.stop or asyncio.get_running_loop().create_future()
        return self.stop

    def end_start(self, result: JobResult) -> None:
        """Tell who waits for the start; nobody is fine."""
        if self.start is not None:
            self.start.set_result(result)
            self.start = None

    def end_stop(self) -> None:
        """The unit is down. A stop has no other end."""
        if self.stop is not None:
            self.stop.set_result(JobResult.DONE)
            self.stop = None


def ended_job(result: JobResult) -> Job:
    """For what needs no waiting."""
    job: Job = asyncio.get_running_loop().create_future()
    job.set_result(result)
    return job
