"""The processes of a unit where no cgroup can be made: a mark that children inherit and cannot take off.

The mark is a value of RLIMIT_RTTIME, the limit of CPU time for real-time scheduling, chosen so high (days) that it
limits nothing. It passes through fork, setsid, double fork and an emptied environment, needs no privilege, cannot be
raised again, and anybody can read it in /proc/PID/limits. INVOCATION_ID in the environment alone was tried: a daemon
that cleans its environment got away.
"""

import os
import random
import resource
import signal

from units.embedded.procfs import ProcessTable, read_mark

_LOWEST = 1 << 40
_HIGHEST = 1 << 62


def choose_mark() -> int:
    """A fresh mark, below the limit that we are under ourselves (a supervisor may run inside a unit)."""
    _, hard = resource.getrlimit(resource.RLIMIT_RTTIME)
    ceiling = _HIGHEST if hard == resource.RLIM_INFINITY else min(hard, _HIGHEST)
    return random.SystemRandom().randrange(_LOWEST, ceiling) if ceiling > _LOWEST else 0


class MarkGroup:
    """All processes with one mark, and their descendants."""

    confirm_s = 0.02  # longer than a snapshot is kept: one may miss a process that forks while it is taken

    def __init__(self, mark: int, table: ProcessTable) -> None:
        self.mark = mark
        self._table = table

    def prepare(self, memory_max_bytes: int) -> bool:
        """Nothing to make; a memory limit cannot be had this way."""
        return memory_max_bytes < 0

    def join(self) -> None:
        """In the child: put the mark on."""
        if self.mark:
            resource.setrlimit(resource.RLIMIT_RTTIME, (self.mark, self.mark))

    def read_pids(self, main: int) -> set[int]:
        """All living processes of the unit. `main` (0: none) counts from its fork on, before it wears the mark."""
        snapshot = self._table.read_snapshot()
        roots = set(snapshot.by_mark.get(self.mark, ())) if self.mark else set()
        return snapshot.family(roots | ({main} if main else set())) - {os.getpid()}

    def kill_now(self) -> None:
        """SIGKILL to everything that wears the mark now."""
        snapshot = self._table.read_snapshot()
        for pid in snapshot.by_mark.get(self.mark, ()) if self.mark else ():
            if read_mark(pid) == self.mark:
                send_signal(pid, signal.SIGKILL)

    def was_out_of_memory(self) -> bool:
        return False

    def remove(self) -> bool:
        """Nothing to take away."""
        return True


def send_signal(pid: int, number: int) -> None:
    """Signal a process that may have ended, or become somebody whom we may not signal."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass
