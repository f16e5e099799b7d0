"""What a job is, and how a client reads it. Pure.

    queued -> running -> done | failed
       |  <-----  |
       +----------+----> cancelled

A running job goes back to `queued` when its worker is stopped in good order, or when it meets a limit that passes by
itself. Names are in snake_case, as everywhere below `/v1/`; times are seconds since the epoch.
"""

from enum import StrEnum
from typing import NamedTuple

import msgspec

Json = dict[str, object]


class JobState(StrEnum):
    """A job's life."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


UNFINISHED = (JobState.QUEUED, JobState.RUNNING)


class JobError(msgspec.Struct, frozen=True):
    """Why a job failed, as the request itself would have been refused."""

    code: str
    message: str
    type: str = "server_error"
    model: str = ""
    status: int = 500
    """Of the answer that the request would have had."""


class Stage(NamedTuple):
    """How a job stands while its request is under way."""

    node: str = ""
    target: str = ""
    """Who works on it; empty: it still waits."""
    step: str = ""
    percent: float | None = None
    started_s: float | None = None


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One job as it is kept, without what was sent and what came of it."""

    seq: int
    """Its place among all jobs of this node."""
    id: str
    owner: str
    """The SHA-256 of the key that made it, in hex; empty: made without a key."""
    path: str
    model: str
    """As the client wrote it."""
    served: str
    """The id of the model that this means."""
    state: JobState
    worker: str = ""
    """The process that works on it."""
    node: str = ""
    target: str = ""
    step: str = ""
    percent: float | None = None
    created_s: float
    not_before_s: float = 0.0
    """It waits until then, because somebody asked it to come back later."""
    started_s: float | None = None
    finished_s: float | None = None
    tries: int = 0
    status: int = 0
    content_type: str = ""
    request_bytes: int = 0
    result_bytes: int = 0
    error: JobError | None = None

    @property
    def is_finished(self) -> bool:
        return self.state not in UNFINISHED


def describe_job(job: Job, *, ahead: int | None, keep_s: float) -> Json:
    """The object that `/v1/jobs/{id}` answers, without the result."""
    return {
        "id": job.id,
        "object": "job",
        "state": job.state.value,
        "path": job.path,
        "model": job.model,
        "ahead": ahead if job.state is JobState.QUEUED else None,
        "node": job.node or None,
        "target": job.target or None,
        "step": job.step or None,
        "percent": job.percent,
        "tries": job.tries,
        "created_at": int(job.created_s),
        "started_at": None if job.started_s is None else int(job.started_s),
        "finished_at": None if job.finished_s is None else int(job.finished_s),
        "expires_at": None if job.finished_s is None else int(job.finished_s + keep_s),
        "error": None if job.error is None else describe_error(job.error),
        "result_url": f"/v1/jobs/{job.id}/result" if job.state is JobState.DONE else None,
        "result_bytes": job.result_bytes if job.state is JobState.DONE else None,
    }


def describe_error(error: JobError) -> Json:
    """The inside of the one envelope."""
    found: Json = {"message": error.message, "type": error.type, "code": error.code}
    if error.model:
        found["model"] = error.model
    return found
