"""Wire messages of plans and of serving as a whole.

GET  /v1/runtimes/{id}/plan   -> PlanReply
POST /v1/runtimes/{id}/admit  -> PlanReply, carried out
POST /v1/serving              ServingRequest -> ServingReply
POST /v1/activity             core.activity.ActivityReport -> ServingReply
"""

from core.message import Message


class PoolReply(Message, frozen=True, kw_only=True):
    """One memory in a plan; sizes in MiB."""

    name: str
    budget_mib: int
    used_mib: int | None
    """Measured now, other programs included; null: it cannot be read."""
    loaded_mib: int
    """The sum of what loaded runtimes are known to need."""
    requested_mib: int
    projected_mib: int
    over_mib: int


class PlanRow(Message, frozen=True, kw_only=True):
    """What the plan means for one runtime."""

    id: str
    action: str
    """`start`, `stop`, `keep` or `none`."""
    reason: str = ""
    memory_mib: int | None = None


class PlanReply(Message, frozen=True, kw_only=True):
    """What loading a runtime would take, in the words that a refused client reads."""

    runtime: str
    allowed: bool
    code: str
    message: str
    retryable: bool
    pools: list[PoolReply] = []
    runtimes: list[PlanRow] = []


class ServingRequest(Message, frozen=True, kw_only=True):
    """Whether this node serves at all. Off: engines are freed and every inference request answers 503."""

    on: bool


class ServingReply(Message, frozen=True, kw_only=True):
    serving: bool
    stopped: list[str] = []
    """Runtimes that are being stopped by this."""


class WarmupReply(Message, frozen=True, kw_only=True):
    """A running engine answered a request of ours."""

    runtime: str
    took_s: float
