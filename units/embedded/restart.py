"""What the end of a main process means, and whether, when and how often the unit comes back. Pure.

The rules are those of systemd.service(5), "Restart=": an exit with 0 and death by SIGHUP, SIGINT, SIGTERM or SIGPIPE
are clean; what was ordered to stop never comes back; starts are counted over a sliding interval.
"""

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from units.model import RestartWhen


class Result(StrEnum):
    """systemd's words for how a life ended."""

    SUCCESS = "success"
    EXIT_CODE = "exit-code"
    SIGNAL = "signal"
    CORE_DUMP = "core-dump"
    TIMEOUT = "timeout"
    WATCHDOG = "watchdog"
    OOM_KILL = "oom-kill"
    PROTOCOL = "protocol"
    RESOURCES = "resources"
    START_LIMIT_HIT = "start-limit-hit"


@dataclass(frozen=True, slots=True)
class Exit:
    """How a main process ended. `status` is its exit status, or the signal's number."""

    status: int
    by_signal: bool = False
    dumped_core: bool = False
    is_known: bool = True
    """False for an adopted process on a kernel that does not tell: counted as a failure."""


UNKNOWN_EXIT = Exit(status=255, is_known=False)

_CLEAN_SIGNALS = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE})


def read_wait_status(status: int) -> Exit:
    """`waitpid`'s status as a value."""
    if os.WIFSIGNALED(status):
        return Exit(os.WTERMSIG(status), by_signal=True, dumped_core=os.WCOREDUMP(status))
    return Exit(os.WEXITSTATUS(status))


def judge_exit(end: Exit) -> Result:
    """Whether a process ended well, in systemd's words."""
    if end.dumped_core:
        return Result.CORE_DUMP
    if end.by_signal:
        return Result.SUCCESS if end.status in _CLEAN_SIGNALS else Result.SIGNAL
    return Result.SUCCESS if end.status == 0 and end.is_known else Result.EXIT_CODE


def is_restarted(when: RestartWhen, result: Result) -> bool:
    """Whether a unit that ended by itself comes back."""
    if when is RestartWhen.ALWAYS:
        return True
    return when is RestartWhen.ON_FAILURE and result is not Result.SUCCESS


def restart_delay_s(delay_s: float, max_delay_s: float, steps: int, restarts: int) -> float:
    """Seconds until the next start: constant, or growing in `steps` to `max_delay_s` (systemd 254's RestartSteps=)."""
    if steps <= 0 or delay_s <= 0 or max_delay_s <= delay_s or max_delay_s == float("inf"):
        return delay_s
    share: float = min(restarts, steps) / steps
    return float(delay_s * (max_delay_s / delay_s) ** share)


def recent_starts(starts_s: Sequence[float], now_s: float, interval_s: float) -> list[float]:
    """The starts that the limit still counts, on the monotonic clock."""
    return [start for start in starts_s if now_s - start < interval_s]


def may_start(starts_s: Sequence[float], now_s: float, *, burst: int, interval_s: float) -> bool:
    """Whether one more start is within the limit; a burst or an interval of 0 sets none."""
    if burst <= 0 or interval_s <= 0:
        return True
    return len(recent_starts(starts_s, now_s, interval_s)) < burst
