"""How much jobs may take."""

from dataclasses import dataclass

from core.api import JobPolicy

MAX_RESULT_BYTES = 64 << 20
"""Of one result; as large as the gateway takes a body to be."""

MAX_RUNNING = 256
"""Jobs that one worker of the gateway works on at once."""


@dataclass(frozen=True, slots=True)
class JobLimits:
    """What an operator allows (`jobs` in the config)."""

    keep_s: float
    """How long a finished job is kept."""
    wait_s: float
    """How long one may wait for its turn."""
    per_key: int
    """Unfinished jobs of one key."""
    store_bytes: int
    """Of all requests and results together."""


def limits_of(policy: JobPolicy) -> JobLimits:
    """What the route table says."""
    return JobLimits(
        keep_s=policy.keep_minutes * 60.0,
        wait_s=policy.wait_minutes * 60.0,
        per_key=policy.max_per_key,
        store_bytes=policy.max_store_mb << 20,
    )
