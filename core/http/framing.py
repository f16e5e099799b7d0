"""Follows one response of an upstream to its end, without touching its body.

llhttp does the work; Python runs only at the head and at the end of the message. Bytes of the body are looked at
in C and passed on verbatim by the caller, because an upstream's chunked framing is valid for the client as it is.
`DecodedFraming` is for the few who need the body without its framing (HTTP/1.0 clients, translation).
"""

from collections.abc import Callable
from typing import ClassVar

from httptools import HttpParserError, HttpResponseParser

from core.http.asgi import Headers


class ResponseFraming:
    """The state of one response. One object for each: nothing of the last response can leak into the next."""

    decodes: ClassVar[bool] = False
    __slots__ = (
        "between_chunks", "complete", "excess", "feed", "has_head", "headers", "keep_alive", "status", "_parser",
    )  # fmt: skip

    def __init__(self) -> None:
        self.headers: Headers = []
        self.status = 0
        self.keep_alive = False
        self.has_head = False
        self.complete = False
        self.excess = False
        """Bytes came after the end of the message: whatever they are, nobody asked for them."""
        self.between_chunks = False
        """What came ends with a whole chunk; another that is known to be whole, and not the last, need not be fed."""
        self._parser: HttpResponseParser | None = HttpResponseParser(self)
        self.feed: Callable[[bytes], None] = self._parser.feed_data
        """Raises: httptools.HttpParserError."""

    def release(self) -> None:
        """Break the cycle between parser and callbacks, so that no garbage collection is needed."""
        self._parser = None
        self.feed = _ignore

    def on_message_begin(self) -> None:
        if self.complete:
            self.excess = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.has_head:  # trailers come here too
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        parser = self._parser
        if parser is None:
            return
        self.status = parser.get_status_code()
        # Only here: llhttp forgets what it needs for this answer once the message is complete.
        self.keep_alive = parser.should_keep_alive()
        self.has_head = True

    def on_chunk_header(self) -> None:
        self.between_chunks = False

    def on_chunk_complete(self) -> None:
        self.between_chunks = True

    def on_message_complete(self) -> None:
        if 100 <= self.status < 200 and not self.complete:
            self.headers = []
            self.has_head = False
        else:
            self.complete = True


class DecodedFraming(ResponseFraming):
    """Hands the body's bytes on without their framing."""

    decodes = True
    __slots__ = ("on_body",)

    def __init__(self, on_body: Callable[[bytes], None]) -> None:
        self.on_body = on_body
        super().__init__()


def strip_framing(headers: Headers, body: bytes) -> bytes:
    """A body that came as it stood on the wire, without its chunks; one that is cut off, as far as it goes."""
    if not any(name == b"transfer-encoding" for name, _ in headers):
        return body
    parts: list[bytes] = []
    framing = DecodedFraming(parts.append)
    try:
        framing.feed(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + body)
    except HttpParserError:
        pass
    framing.release()
    return b"".join(parts)


def _ignore(data: bytes) -> None:
    """The response was over when this came."""
