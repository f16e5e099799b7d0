"""May this caller do this to that runtime? Every path that starts or stops anything asks here. Pure.

A runtime has one owner. On this node, five of our own mechanisms act without being asked (keep-warm, eviction,
watchdog, reload, and what slows a crash loop down) and one sweeps (stop-all); they leave alone what this node does not
own. What is a part of the unit is no decision of ours: a delegated member that crashes is started again by its own
`Restart=`, until its start limit. Nor is the memory guard: it is the machine's last defence, as the kernel's killer is.
An operator here may touch what is local; a runtime delegated to us by a leader or by the control plane is theirs alone
to start and stop.
"""

from dataclasses import dataclass
from enum import StrEnum

from core.errors import PermissionError_
from core.runtime import Authority, AuthorityScope


class Action(StrEnum):
    """What somebody wants to do to a runtime."""

    START = "start"
    STOP = "stop"
    RESTART = "restart"
    EVICT = "evict"
    RELOAD = "reload"
    WARM_UP = "warm"


class Who(StrEnum):
    """Through which path the wish came. All but `OPERATOR`, `CLIENT` and `OWNER` are this node's own mechanisms."""

    OPERATOR = "operator"
    CLIENT = "client"
    """A request for a model, through the gateway."""
    OWNER = "owner"
    """The node or control plane that owns the runtime, proved by its key or certificate."""
    KEEP_WARM = "keep-warm"
    ADMISSION = "admission"
    WATCHDOG = "watchdog"
    CONFIG = "config"
    STOP_ALL = "stop-all"
    CRASH_LOOP = "crash-loop"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, and from which node (proved, never claimed by a header)."""

    who: Who
    node: str


class AuthorityRefused(PermissionError_):
    """The runtime belongs to somebody else."""

    code = "runtime_authority_forbidden"


def may(caller: Caller, action: Action, authority: Authority, *, this_node: str) -> bool:
    """The one rule."""
    if authority.scope is AuthorityScope.LOCAL:
        return authority.owner == this_node == caller.node and caller.who is not Who.OWNER
    if authority.scope is AuthorityScope.DISTRIBUTED_MODEL:
        # A logical runtime that exists only at the leader; clients start it there, its operator does everything.
        is_leader = authority.owner == this_node == caller.node
        return is_leader and (caller.who is Who.OPERATOR or (caller.who is Who.CLIENT and action is Action.START))
    return caller.who is Who.OWNER and caller.node == authority.owner


def require(caller: Caller, action: Action, runtime_id: str, authority: Authority, *, this_node: str) -> None:
    """Raises: AuthorityRefused, which names runtime, owner and caller."""
    if not may(caller, action, authority, this_node=this_node):
        raise AuthorityRefused(
            f"runtime {runtime_id} belongs to {authority.owner or 'nobody'} ({authority.scope}); "
            f"{caller.who} on {caller.node} may not {action} it",
            hint=f"ask {authority.owner}" if authority.owner else "",
        )
