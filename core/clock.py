"""Time as a value that is passed in: monotonic for deadlines, wall only for what people read.

Deadlines and intervals never look at the wall clock: an NTP step or an operator's `date -s` must not expire
anything. Tests pass a clock that they turn by hand.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """Where a program reads the time."""

    def monotonic_s(self) -> float:
        """Seconds since some fixed point; never goes back."""
        ...

    def wall_s(self) -> float:
        """Seconds since the Unix epoch; for display and for stamps in files only."""
        ...


class SystemClock:
    """The kernel's clocks."""

    monotonic_s = staticmethod(time.monotonic)
    wall_s = staticmethod(time.time)
