"""Which accounts and which node this daemon works for, read from the system."""

import grp
import os
import pwd
import socket

from core.config.cluster import local_node
from core.config.schema import Config
from core.errors import DependencyError
from daemon.local_api.access import GATEWAY_USER
from daemon.runtimes.unit import Account

_DEVICE_GROUPS = ("video", "render")


class EngineUserMissing(DependencyError):
    """The engines' system user does not exist."""

    code = "engine_user_missing"


def node_name(config: Config) -> str:
    """`cluster.nodeId`, else the only node of `cluster.nodes`, else the host's name."""
    return local_node(config.cluster, socket.gethostname())


def engine_account(config: Config, *, required: bool) -> Account:
    """The account that engines run as.

    Not root: our own, nothing can be switched. Root without that user: an error when `required` (the package made
    it, so somebody removed it), else our own (a container or a trial with `llmgw up`). Raises: EngineUserMissing.
    """
    if os.geteuid() != 0:
        return Account()
    name = config.engines.user
    try:
        user = pwd.getpwnam(name)
    except KeyError:
        if required:
            raise EngineUserMissing(
                f"the system user {name} does not exist", hint="systemd-sysusers, or set engines.user"
            ) from None
        return Account()
    group = grp.getgrgid(user.pw_gid).gr_name
    present = {entry.gr_name for entry in grp.getgrall()}
    return Account(name, group, tuple(g for g in _DEVICE_GROUPS if g in present), user.pw_uid, user.pw_gid)


def gateway_gid() -> int:
    """The group that may read engines' keys; -1 where the gateway runs as ourselves."""
    if os.geteuid() != 0:
        return -1
    try:
        return pwd.getpwnam(GATEWAY_USER).pw_gid
    except KeyError:
        return -1
