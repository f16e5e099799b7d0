"""What processes use, from /proc. A process that ended meanwhile counts for nothing."""

import os
from collections.abc import Iterable
from pathlib import Path

PROC = Path("/proc")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_UTIME, _STIME = 11, 12
"""Fields of `stat` after the name, counted from the state: proc(5)."""


def read_resident_mib(pids: Iterable[int], proc: Path = PROC) -> int | None:
    """Resident memory of all of them; shared pages count in each. None: nothing could be read."""
    sizes = [size for pid in pids if (size := _resident_bytes(proc / str(pid))) is not None]
    return sum(sizes) >> 20 if sizes else None


def read_cpu_s(pids: Iterable[int], proc: Path = PROC) -> float | None:
    """CPU time that they have used so far. None: nothing could be read."""
    times = [seconds for pid in pids if (seconds := _cpu_s(proc / str(pid))) is not None]
    return sum(times) if times else None


def _resident_bytes(folder: Path) -> int | None:
    try:
        return int((folder / "statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return None


def _cpu_s(folder: Path) -> float | None:
    try:
        # The name may hold spaces and parentheses; the numbers begin after the last one.
        fields = (folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        return (int(fields[_UTIME]) + int(fields[_STIME])) / _TICKS_PER_S
    except (OSError, IndexError, ValueError):
        return None
