"""What a client hears of jobs that cannot be taken or found."""

from core.errors import UnavailableError
from gateway.errors import ApiError


class JobsUnavailable(UnavailableError):
    """Jobs cannot be kept or read now; the request itself can be made without one."""

    code = "job_store_failed"


def too_many_jobs(limit: int) -> ApiError:
    """The key has as many unfinished jobs as it may have."""
    return ApiError(429, "too_many_jobs", f"A key may have {limit} unfinished jobs at once.", retry_after_s=10)


def unknown_job() -> ApiError:
    """There is no such job, or it is somebody else's: the same words for both."""
    return ApiError(404, "job_unknown", "There is no such job, or it is not kept any more.")


def jobs_disabled() -> ApiError:
    """`jobs.maxPerKey` is 0."""
    return ApiError(403, "jobs_disabled", "This node takes no jobs.")
