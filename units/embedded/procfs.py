"""What /proc tells of processes: who a pid is, since when, whose child, and which mark it carries.

A pid alone names nobody, since the kernel uses numbers again; pid and start time together do, within one boot.
"""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_STATE, _PARENT, _START, _EXIT = 0, 1, 19, 49
"""Fields of /proc/PID/stat after the closing bracket of the name (proc(5) fields 3, 4, 22 and 52)."""

_FRESH_S = 0.01


def read_boot_id() -> str:
    """Changes with every boot of the kernel."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def read_start_ticks(pid: int) -> int | None:
    """When the process began, in clock ticks since boot; None when it is gone or only a zombie."""
    fields = _read_stat(pid)
    return None if fields is None or fields[_STATE] in (b"Z", b"X") else int(fields[_START])


def read_zombie_status(pid: int) -> int | None:
    """The wait status of a process that has ended and was not reaped yet; None for any other.

    The caller's pidfd must have told that it ended: a number that is a zombie then is that process, or one that took
    its number and ended within that instant. Other users than its own and root read 0.
    """
    fields = _read_stat(pid)
    return int(fields[_EXIT]) if fields is not None and fields[_STATE] == b"Z" and len(fields) > _EXIT else None


def _read_stat(pid: int) -> list[bytes] | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return None


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All living processes at one moment."""

    by_mark: dict[int, set[int]]
    children: dict[int, list[int]]

    def family(self, roots: set[int]) -> set[int]:
        """`roots` and everything that descends from them."""
        found, rest = set(roots), list(roots)
        while rest:
            new = [pid for pid in self.children.get(rest.pop(), ()) if pid not in found]
            found.update(new)
            rest.extend(new)
        return found


class ProcessTable:
    """Snapshots of /proc, shared by all units that ask within one tick: a scan costs O(processes)."""

    def __init__(self) -> None:
        self._taken_s = 0.0
        self._snapshot = Snapshot({}, {})

    def read_snapshot(self) -> Snapshot:
        """A snapshot that is at most a tick old."""
        now_s = time.monotonic()
        if now_s - self._taken_s > _FRESH_S:
            self._snapshot = _take_snapshot()
            self._taken_s = time.monotonic()
        return self._snapshot


def _take_snapshot() -> Snapshot:
    by_mark: dict[int, set[int]] = {}
    children: dict[int, list[int]] = {}
    for pid in _pids():
        fields = _read_stat(pid)
        if fields is None or fields[_STATE] in (b"Z", b"X"):
            continue
        children.setdefault(int(fields[_PARENT]), []).append(pid)
        if mark := read_mark(pid):
            by_mark.setdefault(mark, set()).add(pid)
    return Snapshot(by_mark, children)


def read_mark(pid: int) -> int:
    """The hard limit of real-time CPU time (`units.embedded.mark` says why); 0 when there is none or no process."""
    try:
        with open(f"/proc/{pid}/limits", "rb") as file:
            line = next((line for line in file if line.startswith(b"Max realtime timeout")), b"")
    except OSError:
        return 0
    hard = line.split()[4:5]
    return int(hard[0]) if hard and hard[0].isdigit() else 0
