"""Who a service runs as. Looked up in the supervisor, before the fork: a name service may take locks and time."""

import grp
import os
import pwd
from dataclasses import dataclass

from core.errors import ConfigError
from units.embedded.parse import EmbeddedUnit


class IdentityUnknown(ConfigError):
    """A `User=` or `Group=` that this machine does not know."""

    code = "unit_user_unknown"


@dataclass(frozen=True, slots=True)
class Identity:
    """Numbers for the kernel, and what the environment says of the user."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    name: str = ""
    home: str = "/"
    shell: str = "/bin/sh"


def names_identity(unit: EmbeddedUnit) -> bool:
    """Whether the unit asks to run as somebody."""
    return bool(unit.user or unit.group or unit.supplementary_groups)


def read_identity(unit: EmbeddedUnit) -> Identity | None:
    """Whom to become; None when the unit names nobody, or when we are not root and can only stay who we are.

    Raises: IdentityUnknown.
    """
    if os.geteuid() != 0 or not names_identity(unit):
        return None
    try:
        user = _find_user(unit.user) if unit.user else None
        gid = _find_group(unit.group) if unit.group else user.pw_gid if user else os.getgid()
        extra = [_find_group(name) for name in unit.supplementary_groups]
    except KeyError as error:
        raise IdentityUnknown(f"{unit.name}: {error.args[0]}") from error
    if user is None:
        return Identity(os.getuid(), gid, tuple(extra))
    groups = {*os.getgrouplist(user.pw_name, gid), *extra}
    return Identity(user.pw_uid, gid, tuple(sorted(groups)), user.pw_name, user.pw_dir, user.pw_shell or "/bin/sh")


def _find_user(name: str) -> pwd.struct_passwd:
    return pwd.getpwuid(int(name)) if name.isdigit() else pwd.getpwnam(name)


def _find_group(name: str) -> int:
    return int(name) if name.isdigit() else grp.getgrnam(name).gr_gid
