"""What gateway processes tell the daemon of the requests that they carry: `POST /v1/activity`.

Each worker reports when its counts change (at most ten times a second) and at least every two seconds. The daemon
adds them up: to know what is idle, when a drained runtime has really fallen silent, and that every worker has seen
a route table.
"""

from core.message import Message

REPORT_EVERY_S = 2.0
FORGET_AFTER_S = 6.0
"""A worker that was silent for so long is dead, and its requests with it."""


class AdapterActivity(Message, frozen=True, kw_only=True):
    """One worker's requests for one LoRA adapter of a runtime."""

    in_use: int = 0
    """At the engine, or waiting for a slot of it: until these have ended, the adapter must stay."""
    idle_s: float | None = None
    """Seconds since the last one ended; null: none has."""


class RuntimeActivity(Message, frozen=True, kw_only=True):
    """One worker's requests for one runtime."""

    active: int = 0
    """Sent to the engine and not over; over when the engine's side has really ended."""
    waiting: int = 0
    """Waiting for a slot or for the runtime to start."""
    idle_s: float | None = None
    """Seconds since the last request ended; null: there was none."""
    bytes_total: int = 0
    """Bytes of answers that the engine has sent so far: whether it moves."""
    held_back: int = 0
    """Of the active ones: those whose client does not read, so that the engine is paused for it."""
    stalled_s: float = 0.0
    """How long the request that waits longest for its next byte has waited; 0: none does."""
    adapters: dict[str, AdapterActivity] = {}
    """By name; those that a request was ever for."""


class BackendActivity(Message, frozen=True, kw_only=True):
    """One worker's requests for one backend, and how it stands."""

    active: int = 0
    waiting: int = 0
    standing: str = "good"
    """`good`, `resting`, `returning` or `out`, in whichever worker it failed."""
    error: str = ""
    """Why the last request of this worker that failed there did."""
    failed_ago_s: float | None = None
    """How long ago; null: none did."""


class ActivityReport(Message, frozen=True, kw_only=True):
    """Everything that one worker has under way."""

    source: str
    """Names the worker, and this life of it: pid and start."""
    epoch: str
    version: int
    """The route table that it dispatches by."""
    runtimes: dict[str, RuntimeActivity] = {}
    backends: dict[str, BackendActivity] = {}
    complaint: str = ""
    """What keeps it from serving as the config says: a certificate that cannot be used."""
