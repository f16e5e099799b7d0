"""One timer for all deadlines of one owner: no request starts a timer of its own.

The timer runs only while the owner has something to look at, so an idle program wakes up for nothing.
"""

import asyncio
import time
from collections.abc import Callable


class Sweeper:
    """Calls `look(now)` (`time.monotonic`) every `period_s` until it answers False; `wake` starts it again."""

    __slots__ = ("_look", "_period_s", "_timer")

    def __init__(self, period_s: float, look: Callable[[float], bool]) -> None:
        self._period_s = period_s
        self._look = look
        self._timer: asyncio.TimerHandle | None = None

    def wake(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._period_s, self._sweep)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _sweep(self) -> None:
        self._timer = None
        if self._look(time.monotonic()):
            self.wake()
