"""Leaves out of a relayed event stream what its reader did not ask for. Bytes in, bytes out; no network.

A stream is bytes that pass as they are for as long as nothing in them is to be left out: for each read one search and
one look at how it ends. From the first read that holds such a thing, or that ends inside an event, the stream is taken
out of its chunks, cut into events and put into chunks of ours, to its end. So an engine that sends whole events, as all
that we know do, has its last two or three reads made anew.

Where it could not be right it does nothing: a read that is not whole chunks, though all before it ended as chunks do,
passes as it is with all that follows, and so does an event of which there is no end. An event whose sender ended a
chunk in the middle of the very word that is searched for may pass, too; the reader then sees what it need not see.
"""

import re
from typing import Protocol

from httptools import HttpParserError

from core.http.framing import DecodedFraming

_LONGEST_EVENT = 1 << 20
"""Bytes that are held back for the rest of an event."""
_CHUNK_ENDS = (b"\n\n\r\n", b"\r\n\r\n\r\n")
_EVENT_ENDS = (b"\n\n", b"\r\n\r\n")
_END = re.compile(rb"\n\r?\n")
_CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
_LAST_CHUNK = b"0\r\n\r\n"


class Unwanted(Protocol):
    """What is left out of a stream."""

    needle: bytes
    """Bytes without which an event is not looked at. Finding them costs a tenth of what the pattern costs."""
    pattern: re.Pattern[bytes]
    """Begins with the needle; an event in which it is not found is not looked at either."""

    def is_unwanted(self, event: bytes) -> bool:
        """Whether this event, which ends in a blank line, is left out."""


class Trimmer:
    """One stream. `is_chunked`: its bytes come, and go, in the framing of HTTP/1.1."""

    __slots__ = (
        "_ends", "_framing", "_held", "_is_chunked", "_is_over", "_needle", "_parts", "_unwanted",
        "is_edited",
    )  # fmt: skip

    def __init__(self, unwanted: Unwanted, *, is_chunked: bool) -> None:
        self._unwanted = unwanted
        self._needle = unwanted.needle
        self._is_chunked = is_chunked
        self._ends = _CHUNK_ENDS if is_chunked else _EVENT_ENDS
        self._framing: DecodedFraming | None = None
        self._parts: list[bytes] = []
        self._held = b""
        self._is_over = False
        """Nothing is looked for any more."""
        self.is_edited = False
        """The bytes do not pass as they came: whoever has read them stands between two events, and two chunks."""

    def feed(self, data: bytes) -> bytes:
        """What of it is sent on now."""
        if not self.is_edited:
            if not data or self._is_over or (data.endswith(self._ends) and not self._is_suspect(data)):
                return data
            if not self._begin(data):
                self._is_over = True
                return data
        elif self._framing is not None:
            self._framing.feed(data)
        else:
            self._parts.append(data)
        return self._chunk(self._cut())

    def finish(self) -> bytes:
        """What is left when the stream has come to its end."""
        if not self.is_edited:
            return b""
        if self._framing is not None:
            self._framing.release()
        rest, self._held = self._held, b""
        if self._is_suspect(rest) and self._unwanted.is_unwanted(rest):
            rest = b""
        return self._chunk(rest) + (_LAST_CHUNK if self._is_chunked else b"")

    def _is_suspect(self, data: bytes) -> bool:
        return self._needle in data and self._unwanted.pattern.search(data) is not None

    def _begin(self, data: bytes) -> bool:
        """Take the stream out of its chunks from here on; False when these are none."""
        if not self._is_chunked:
            self._parts.append(data)
        else:
            framing = DecodedFraming(self._parts.append)
            try:
                framing.feed(_CHUNKED_HEAD)
                framing.feed(data)
            except HttpParserError:
                framing.release()
                self._parts.clear()
                return False
            self._framing = framing
        self.is_edited = True
        return True

    def _cut(self) -> bytes:
        """The whole events of what has come, but for those that are unwanted; the rest is held back."""
        data = self._held + b"".join(self._parts)
        self._parts.clear()
        kept: list[bytes] = []
        begin = 0
        for found in _END.finditer(data):
            event = data[begin : found.end()]
            begin = found.end()
            if not self._is_suspect(event) or not self._unwanted.is_unwanted(event):
                kept.append(event)
        self._held = data[begin:]
        if len(self._held) > _LONGEST_EVENT:
            kept.append(self._held)
            self._held = b""
        return b"".join(kept)

    def _chunk(self, data: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(data), data) if data and self._is_chunked else data
