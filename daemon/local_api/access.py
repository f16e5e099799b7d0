"""Who may do what on the daemon's socket. The caller is who the kernel says it is, never who a header says.

Anybody on the machine can open the socket; what they may ask is decided here, from the peer's uid and groups.
"""

import grp
import os
import pwd
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

from core.errors import PermissionError_

T = TypeVar("T")

ADMIN_GROUP = "llmgw-admin"
GATEWAY_USER = "llmgw"


class Role(IntEnum):
    """What a caller may do; each includes the one before."""

    NONE = 0
    GATEWAY = 1
    """Read state and routes, and have runtimes started and stopped: for clients, and for administrators whom the
    gateway has checked. Nothing here installs, removes or writes anything."""
    ADMIN = 2
    """Change this machine."""


class CallerRefused(PermissionError_):
    """This user may not ask that of the daemon."""

    code = "caller_refused"


@dataclass(frozen=True, slots=True)
class Caller:
    """The process at the other end of the socket."""

    pid: int
    uid: int
    gid: int


def role_of(
    caller: Caller, *, own_uid: int, gateway_uid: int | None, admin_gid: int | None, groups: Collection[int]
) -> Role:
    """Pure. `groups` are the caller's, supplementary ones included."""
    if caller.uid in (0, own_uid) or (admin_gid is not None and admin_gid in groups):
        return Role.ADMIN
    return Role.GATEWAY if caller.uid == gateway_uid else Role.NONE


def require(role: Role, needed: Role, caller: Caller) -> None:
    """Raises: CallerRefused, with the way to be allowed."""
    if role < needed:
        raise CallerRefused(
            f"user {caller.uid} may not do this", hint=f"use sudo, or join the group {ADMIN_GROUP} and log in again"
        )


class Gatekeeper:
    """Knows this machine's users and groups. Look-ups happen per request: group changes take effect at once."""

    def __init__(self) -> None:
        self._own_uid = os.geteuid()

    def role(self, caller: Caller) -> Role:
        """The caller's role now."""
        return role_of(
            caller,
            own_uid=self._own_uid,
            gateway_uid=_known(lambda: pwd.getpwnam(GATEWAY_USER).pw_uid),
            admin_gid=_known(lambda: grp.getgrnam(ADMIN_GROUP).gr_gid),
            groups=_groups(caller),
        )


def _groups(caller: Caller) -> set[int]:
    name = _known(lambda: pwd.getpwuid(caller.uid).pw_name)
    return {caller.gid, *(os.getgrouplist(name, caller.gid) if name is not None else ())}


def _known(look_up: Callable[[], T]) -> T | None:
    try:
        return look_up()
    except KeyError:
        return None
