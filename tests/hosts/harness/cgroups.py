"""The cgroups of a test host: one below the unified hierarchy, and in hybrid mode one below each version 1 hierarchy.

A host's cgroup is the handle by which the whole of it is frozen, killed and known to be gone. It also gives hosts
cgroup namespaces that do not overlap: without one of its own each host would share `/init.scope` with the others.

Hybrid mode exists for machines whose controllers sit on version 1 hierarchies: there a pure version 2 host ignores
MemoryMax, TasksMax and CPUQuota without a word, and a hybrid one enforces them.
"""

import os
import select
import time
from pathlib import Path

_CONTROLLERS = "+memory +pids +cpu"


def mounts_of_type(kind: str) -> list[Path]:
    """Mount points of cgroup file systems: `kind` is `cgroup2` or `cgroup` (version 1)."""
    rows = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
    return sorted({Path(row[1]) for row in rows if row[2] == kind})


def unified_root() -> Path:
    """Where the version 2 hierarchy is mounted: `/sys/fs/cgroup`, or below it on a mixed machine."""
    return mounts_of_type("cgroup2")[0]


def create_unified(prefix: str, name: str) -> Path:
    """Make the host's version 2 cgroup, with whatever controllers this hierarchy can hand down."""
    parent = unified_root() / prefix
    parent.mkdir(exist_ok=True)
    for level in (parent.parent, parent):
        for controller in _CONTROLLERS.split():
            try:
                (level / "cgroup.subtree_control").write_text(controller)
            except OSError:
                continue  # a controller that sits on a version 1 hierarchy, or is not there at all
    group = parent / name
    group.mkdir(exist_ok=True)
    return group


def create_legacy(prefix: str, name: str) -> list[Path]:
    """Make the host's cgroup on every version 1 hierarchy; memory goes below our own, which may be all we are given."""
    groups = []
    for mount in mounts_of_type("cgroup"):
        parent = _legacy_parent(mount, prefix)
        group = parent / name
        group.mkdir(parents=True, exist_ok=True)
        if mount.name == "cpuset":  # an empty cpuset takes no process, and nothing is inherited
            for attribute in ("cpuset.cpus", "cpuset.mems"):
                value = (mount / attribute).read_text()
                (parent / attribute).write_text(value)
                (group / attribute).write_text(value)
        groups.append(group)
    return groups


def is_populated(group: Path) -> bool:
    """Whether any process is left in the cgroup or below it."""
    try:
        return "populated 1" in (group / "cgroup.events").read_text()
    except FileNotFoundError:
        return False


def wait_empty(group: Path, timeout_s: float) -> bool:
    """Wait until no process is left; the kernel tells by POLLPRI on `cgroup.events`.

    A process's pid is no substitute: until somebody reaps it, a dead init looks alive.
    """
    deadline = time.monotonic() + timeout_s
    try:
        handle = os.open(group / "cgroup.events", os.O_RDONLY)
    except FileNotFoundError:
        return True
    try:
        poller = select.poll()
        poller.register(handle, select.POLLPRI)
        while b"populated 1" in os.pread(handle, 256, 0):
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            poller.poll(left_s * 1000)
        return True
    finally:
        os.close(handle)


def kill_all(group: Path, timeout_s: float = 20.0) -> None:
    """SIGKILL everything in the cgroup, frozen or not, and wait until it is gone."""
    if not group.is_dir():
        return
    (group / "cgroup.freeze").write_text("0")
    (group / "cgroup.kill").write_text("1")
    if not wait_empty(group, timeout_s):
        raise TimeoutError(f"processes survive in {group}")


def remove_everywhere(prefix: str, name: str = "") -> None:
    """Remove the (empty) cgroups of one host, or of the whole prefix, on every hierarchy."""
    roots = [unified_root() / prefix, *(_legacy_parent(mount, prefix) for mount in mounts_of_type("cgroup"))]
    for root in roots:
        top = root / name if name else root
        for directory, _, _ in os.walk(top, topdown=False):
            try:
                os.rmdir(directory)
            except OSError:
                continue  # somebody is in it: it is not ours to force, kill_all comes first


def _legacy_parent(mount: Path, prefix: str) -> Path:
    if mount.name.split(",")[0] != "memory":
        return mount / prefix
    rows = (line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines())
    own = next(path for _, controllers, path in rows if "memory" in controllers.split(","))
    return mount / own.lstrip("/") / prefix
