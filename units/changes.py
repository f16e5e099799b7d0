"""Which units changed, for several listeners at their own pace: at least once per change, never a backlog.

A listener that lags does not pile up history: a unit that changed twice is told once, with what it is by then.
"""

import asyncio
import weakref
from collections.abc import Iterable


class ChangeFeed:
    """Hands each unit's name to every listener. Use from one event loop."""

    def __init__(self) -> None:
        self._listeners: weakref.WeakSet[ChangeListener] = weakref.WeakSet()

    def listen(self) -> "ChangeListener":
        """A new listener, counted from now. It needs no goodbye: it is forgotten with its last reference."""
        listener = ChangeListener()
        self._listeners.add(listener)
        return listener

    def announce(self, names: Iterable[str]) -> None:
        """Something of these units changed."""
        for name in names:
            for listener in self._listeners:
                listener.add(name)


class ChangeListener:
    """The names that one listener has still to hear of, in the order in which they first changed."""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}
        self._filled = asyncio.Event()

    def add(self, name: str) -> None:
        self._names[name] = None
        self._filled.set()

    async def next_name(self) -> str:
        """Wait for the next unit that changed."""
        while not self._names:
            self._filled.clear()
            await self._filled.wait()
        name = next(iter(self._names))
        del self._names[name]
        return name
