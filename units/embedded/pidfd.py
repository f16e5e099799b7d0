"""A process held by descriptor: it cannot be mistaken for another, and its end is an event of the loop."""

import fcntl
import os
import struct

from units.embedded.procfs import read_start_ticks, read_zombie_status
from units.embedded.restart import UNKNOWN_EXIT, Exit, read_wait_status

_PIDFD_GET_INFO = 0xC040FF0B
"""_IOWR(PIDFS_IOCTL_MAGIC, 11, struct pidfd_info) for the structure's first version of 64 bytes."""

_PIDFD_INFO_EXIT = 1 << 3
_INFO = struct.Struct("=Q52xi")
"""mask at offset 0, exit_code at offset 60 (include/uapi/linux/pidfd.h)."""


def open_process(pid: int, start_ticks: int) -> int | None:
    """A pidfd for exactly that process; None when it is gone.

    The descriptor is opened before the start time is compared, so that no other process can slip in between.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return None
    if read_start_ticks(pid) == start_ticks:
        return descriptor
    os.close(descriptor)
    return None


def read_child_exit(pid: int) -> Exit:
    """Reap our own child, which must have ended."""
    try:
        return read_wait_status(os.waitpid(pid, 0)[1])
    except ChildProcessError:
        return UNKNOWN_EXIT


def read_stranger_exit(pid: int, pidfd: int) -> Exit | None:
    """How a process that is not our child ended; None as long as nobody tells.

    While it is a zombie, /proc has its status, on any kernel. Once its parent (init) has reaped it, the pidfd has it
    on Linux 6.15 and later; earlier ones refuse the request or do not set the flag.
    """
    status = read_zombie_status(pid)
    if status is None:
        status = _read_reaped_status(pidfd)
    return None if status is None else read_wait_status(status)


def _read_reaped_status(pidfd: int) -> int | None:
    buffer = bytearray(_INFO.pack(_PIDFD_INFO_EXIT, 0))
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, buffer)
    except OSError:
        return None
    mask, status = _INFO.unpack(buffer)
    return int(status) if mask & _PIDFD_INFO_EXIT else None
