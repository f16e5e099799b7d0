"""One timer for all deadlines of one owner: no request starts a timer of its own.

The timer runs only while the owner has something to look at, so an idle program wakes up for nothing.
"""

import asyncio
import time
from collections.abc import Callable


class Sweeper:
    """Calls `look(now)` (`time.monotonic`) every `period_s` until it answers False; `wake` starts it again."""

    __slots__ = ("_look", "_period_s", "_timer", "is_asleep", "now_s")

    def __init__(self, period_s: float, look: Callable[[float], bool]) -> None:
        self._period_s = period_s
        self._look = look
        self._timer: asyncio.TimerHandle | None = None
        self.is_asleep = True
        """Whether it needs to be woken; asked first by who would wake it all the time."""
        self.now_s = 0.0
        """While it is awake: when it looked last. For deadlines that are far away it saves asking for the time."""

    def wake(self) -> None:
        if self.is_asleep:
            self.is_asleep = False
            self.now_s = time.monotonic()
            self._timer = asyncio.get_running_loop().call_later(self._period_s, self._sweep)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.is_asleep = True

    def _sweep(self) -> None:
        self._timer = None
        self.is_asleep = True
        if self._look(time.monotonic()):
            self.wake()
