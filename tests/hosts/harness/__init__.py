"""Test hosts: Debian trees booted with a real systemd as PID 1, in namespaces, in about half a second.

    with Host("a") as host:
        host.run("systemctl", "is-system-running")

Needs root, util-linux, iproute2, overlayfs and mmdebstrap; no systemd, Docker or virtual machine outside. Nothing is
mounted in the namespaces of the test process, so a crash leaves no mount behind; what else a killed test process
leaves (cgroups, named network namespaces, a directory) is collected by the next one that starts a host.
"""

from tests.hosts.harness.boot import Completed, Host, HostCommandFailed, HostFailed
from tests.hosts.harness.layers import cached_layer
from tests.hosts.harness.net import Network
from tests.hosts.harness.tree import base_tree, cache_directory, cache_lock

__all__ = [
    "Completed",
    "Host",
    "HostCommandFailed",
    "HostFailed",
    "Network",
    "base_tree",
    "cache_directory",
    "cache_lock",
    "cached_layer",
]
