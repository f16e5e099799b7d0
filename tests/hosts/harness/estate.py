"""What one test process owns outside itself, and how the leavings of one that was killed are collected.

Everything is named after the process: `lth` and its pid, for cgroups, network namespaces and the directory with the
hosts' disks. Several test processes so never meet, and whoever starts later can see which of them are dead.
"""

import atexit
import contextlib
import fcntl
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

from tests.hosts.harness import cgroups
from tests.hosts.harness.tree import cache_directory

_PREFIX = "lth"
_LARGE_ENOUGH_BYTES = 2 << 30


class Estate:
    """This process's prefix and directory; the directory's lock says that the process lives."""

    def __init__(self) -> None:
        self.prefix = f"{_PREFIX}{os.getpid()}"
        self.directory = _disks() / self.prefix
        self._lock: int | None = None

    def open(self) -> None:
        """Collect what dead processes left, then take the lock on our own directory."""
        for other in _disks().glob(f"{_PREFIX}*"):
            _collect_if_dead(other)
        self.directory.mkdir(parents=True)
        self._lock = os.open(self.directory / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def close(self) -> None:
        """Give everything back; hosts that still run are killed."""
        if self._lock is not None:
            _collect(self.directory)
            os.close(self._lock)
            self._lock = None


@cache
def estate() -> Estate:
    """The estate of this process, opened on first use and closed when the process exits."""
    own = Estate()
    own.open()
    pid = os.getpid()
    # A forked child inherits the hook, and must not pull down its parent's hosts.
    atexit.register(lambda: own.close() if os.getpid() == pid else None)
    return own


def namespace_exists(name: str) -> bool:
    return Path("/run/netns", name).exists()


def delete_namespace(name: str) -> None:
    if namespace_exists(name):
        subprocess.run(["ip", "netns", "delete", name], check=True, timeout=30)


def _disks() -> Path:
    """Memory for the hosts' disks where there is enough of it, else the cache's disk."""
    memory = Path("/dev/shm")
    if shutil.disk_usage(memory).free >= _LARGE_ENOUGH_BYTES:
        return memory
    return cache_directory()


def _collect_if_dead(directory: Path) -> None:
    try:
        handle = os.open(directory / "lock", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        _drop_if_ownerless(directory)
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return  # its owner lives
    else:
        _collect(directory)
    finally:
        os.close(handle)


def _drop_if_ownerless(directory: Path) -> None:
    """Between mkdir and the lock a directory has no lock file; only one whose pid is gone too is left over."""
    pid = directory.name.removeprefix(_PREFIX)
    if not Path("/proc", pid).exists():
        _collect(directory)


def _collect(directory: Path) -> None:
    prefix = directory.name
    root = cgroups.unified_root() / prefix
    for group in [path for path in root.glob("*") if path.is_dir()]:
        cgroups.kill_all(group)
    cgroups.remove_everywhere(prefix)
    for name in Path("/run/netns").glob(f"{prefix}-*"):
        delete_namespace(name.name)
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(directory)
