"""A process held by descriptor: it cannot be mistaken for another, and its end is an event of the loop."""

import fcntl
import os
import struct

from units.embedded.procfs import read_start_ticks
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


def read_stranger_exit(pidfd: int) -> Exit | None:
    """How a process that is not our child ended; None until its parent has reaped it, or for ever on an old kernel.

    Linux 6.15 and later tell; earlier ones refuse the request or do not set the flag.
    """
    buffer = bytearray(_INFO.pack(_PIDFD_INFO_EXIT, 0))
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, buffer)
    except OSError:
        return None
    mask, status = _INFO.unpack(buffer)
    return read_wait_status(status) if mask & _PIDFD_INFO_EXIT else None
