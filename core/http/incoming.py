"""A request's body that is read while it still arrives: for forms with files, too large to be held as a whole.

The connection feeds it, the application reads it; between them waits little more than `_FULL_BYTES`, and the client is
not read from while that is full. A body that breaks off or is too long is an error at the reader's next read.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from core.http.asgi import ClientDisconnectedError
from core.http.refusal import Refusal

_FULL_BYTES = 512 << 10


class BodyRefused(Exception):
    """The rest of the body will not come, for what the client did; `refusal` says what."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class Incoming:
    """See the module. `length` is that of the whole body in bytes; None: it comes in chunks."""

    __slots__ = ("_changed", "_failure", "_hold", "_is_held", "_parts", "_size", "is_complete", "length")

    def __init__(self, length: int | None, hold: Callable[[bool], None]) -> None:
        """`hold` is told whether the client is to be held back."""
        self.length = length
        self.is_complete = False
        """Whether all of it has come; perhaps not all of it is read."""
        self._parts: deque[bytes] = deque()
        self._size = 0
        self._hold = hold
        self._is_held = False
        self._failure: Exception | None = None
        self._changed = asyncio.Event()

    async def read(self) -> bytes:
        """What has come since the last read; empty at the end. Raises: BodyRefused, ClientDisconnectedError."""
        while not self._parts:
            if self._failure is not None:
                raise self._failure
            if self.is_complete:
                return b""
            self._changed.clear()
            await self._changed.wait()
        data = b"".join(self._parts)
        self._parts.clear()
        self._size = 0
        if self._is_held:
            self._is_held = False
            self._hold(False)
        return data

    # what the connection calls

    def feed(self, part: bytes) -> None:
        self._parts.append(part)
        self._size += len(part)
        if self._size > _FULL_BYTES and not self._is_held:
            self._is_held = True
            self._hold(True)
        self._changed.set()

    def finish(self) -> None:
        self.is_complete = True
        self._changed.set()

    def refuse(self, refusal: Refusal) -> None:
        self._failure = self._failure or BodyRefused(refusal)
        self._changed.set()

    def abandon(self) -> None:
        """The client left."""
        self._failure = self._failure or ClientDisconnectedError("the client has left")
        self._changed.set()


def whole_body(body: bytes) -> Incoming:
    """One that has arrived."""
    incoming = Incoming(len(body), lambda _: None)
    if body:
        incoming.feed(body)
    incoming.finish()
    return incoming
