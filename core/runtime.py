"""What a runtime is: one engine serving on one node, under one unit. Its states and who may touch it."""

from dataclasses import dataclass
from enum import StrEnum

from core.errors import BugError


class RuntimeState(StrEnum):
    """A runtime's life. The unit's own words (`active`, …) stay with the unit."""

    STOPPED = "stopped"
    QUEUED = "queued"
    STARTING = "starting"
    WARMING = "warming"
    RUNNING = "running"
    DRAINING = "draining"
    STOPPING = "stopping"
    FAILED = "failed"


_S = RuntimeState

TRANSITIONS: dict[RuntimeState, frozenset[RuntimeState]] = {
    _S.STOPPED: frozenset({_S.QUEUED, _S.STARTING, _S.FAILED}),
    _S.QUEUED: frozenset({_S.STARTING, _S.STOPPED, _S.FAILED}),
    _S.STARTING: frozenset({_S.WARMING, _S.RUNNING, _S.STOPPING, _S.FAILED}),
    _S.WARMING: frozenset({_S.RUNNING, _S.STARTING, _S.STOPPING, _S.FAILED}),
    # running -> starting: the engine crashed and the service manager starts it again.
    _S.RUNNING: frozenset({_S.DRAINING, _S.STOPPING, _S.STARTING, _S.FAILED, _S.STOPPED}),
    _S.DRAINING: frozenset({_S.STOPPING, _S.RUNNING, _S.FAILED}),
    _S.STOPPING: frozenset({_S.STOPPED, _S.FAILED, _S.STARTING}),
    _S.FAILED: frozenset({_S.QUEUED, _S.STARTING, _S.STOPPING, _S.STOPPED}),
}
"""The only legal changes. Adoption is not a change: an adopted runtime begins in the state that was seen."""


AT_REST = frozenset({_S.STOPPED, _S.FAILED})
"""Nothing of it runs, and nothing is under way."""
ENDING = frozenset({_S.DRAINING, _S.STOPPING})
"""It goes down."""


def check_transition(before: RuntimeState, after: RuntimeState) -> None:
    """Raise `BugError` unless `before -> after` is in the table."""
    if after not in TRANSITIONS[before]:
        raise BugError(f"a runtime cannot go from {before} to {after}", code="illegal_transition")


class AuthorityScope(StrEnum):
    """What kind of owner a runtime has (`docs/reference` explains each)."""

    LOCAL = "local"
    DISTRIBUTED_MEMBER = "distributed-member"
    DISTRIBUTED_MODEL = "distributed-model"
    REPLICA = "replica"


@dataclass(frozen=True, slots=True)
class Authority:
    """Who may start, stop, restart or evict a runtime."""

    owner: str
    scope: AuthorityScope = AuthorityScope.LOCAL
    group: str = ""
