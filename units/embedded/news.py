"""How a unit waits: for facts, not for callbacks.

Everything that happens to a unit (its process ended, it said READY, somebody ordered a stop) sets a field and pokes;
the unit's one task waits until the facts are as it needs them, or until a deadline. So a unit is one plain sequence
of steps, and nothing is ever cancelled half-way.
"""

import asyncio
import math
import time
from collections.abc import Callable

Deadline = Callable[[], float]
"""When to stop waiting, on the monotonic clock; asked again after every poke, since services may extend it."""


def never() -> float:
    return math.inf


class News:
    """One waiter, any number of pokes."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def poke(self) -> None:
        """Something may be different now."""
        self._event.set()

    async def until(self, is_so: Callable[[], bool], deadline: Deadline = never) -> bool:
        """Return True once `is_so()`, False when the deadline passed before."""
        while not is_so():
            self._event.clear()
            left_s = deadline() - time.monotonic()
            if left_s <= 0:
                return False
            try:
                async with asyncio.timeout(None if math.isinf(left_s) else left_s):
                    await self._event.wait()
            except TimeoutError:
                pass  # the loop asks both questions again
        return True

    async def pause(self, seconds: float) -> None:
        """Until the next poke, at most `seconds`."""
        self._event.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            pass
