"""One keep-alive connection to an upstream, and whoever listens to its present response (a `Sink`).

A connection is idle (no sink), waits for a head, or passes a body on. It never decides about retries: it tells
its sink what happened and goes back to its target's pool, or closes.
"""

import asyncio
from typing import Protocol

from httptools import HttpParserError

from core.http.framing import DecodedFraming, ResponseFraming
from core.http.verdict import Ended

_HEAD_END = b"\r\n\r\n"


class Sink(Protocol):
    """Who hears of a response. After `complete` or `failed` nothing more comes."""

    @property
    def decodes(self) -> bool:
        """Whether `data` gets the body without chunk framing."""

    def head(self, connection: "UpstreamConnection", framing: ResponseFraming) -> bool:
        """The final head arrived. False: the sink wants nothing of it; the connection closes itself."""

    def data(self, data: bytes) -> None:
        """Bytes of the body. Once right after the head, with those that came in the same read, if any."""

    def complete(self) -> None:
        """The message is over and the connection is free again."""

    def failed(self, ended: Ended, detail: str, reused: bool) -> None:
        """The connection is closed and the message is not whole.

        `reused`: the connection had served before and not one byte came: it was stale, and the upstream never saw
        the request.
        """


class Home(Protocol):
    """Where a connection goes when its response is over (`core.http.pool.Target`)."""

    def give_back(self, connection: "UpstreamConnection") -> None: ...

    def forget(self, connection: "UpstreamConnection") -> None: ...


class UpstreamConnection(asyncio.Protocol):
    """See the module."""

    __slots__ = (
        "_framing", "_head_bytes", "_head_only", "_held", "_home", "_kind", "_paused", "_served", "_sink",
        "_started", "idle_since", "transport",
    )  # fmt: skip

    def __init__(self, home: Home, head_bytes: int) -> None:
        self._home = home
        self._head_bytes = head_bytes
        self._sink: Sink | None = None
        self._framing: ResponseFraming | None = None
        self._held = b""
        self._head_only = False
        self._paused = False
        self._served = False
        self._started = False
        self._kind: tuple[Ended, str] | None = None
        self.idle_since = 0.0
        self.transport: asyncio.Transport | None = None

    def begin(self, sink: Sink, head: bytes, body: bytes, *, head_only: bool) -> None:
        """Send a request and tell `sink` what comes of it."""
        transport = self.transport
        if transport is None:
            sink.failed(Ended.CLOSED_EARLY, "closed", self._served)
            return
        self._sink = sink
        self._head_only = head_only
        self._framing = DecodedFraming(sink.data) if sink.decodes else ResponseFraming()
        if len(body) < 16384:
            transport.write(head + body)
        else:
            # The event loop sends both in one writev; joining would copy the body once more.
            transport.write(head)
            transport.write(body)

    def abort(self, ended: Ended, detail: str = "") -> None:
        """Close at once. The sink hears `failed(ended)` when the connection is really closed."""
        if self.transport is not None:
            self._kind = self._kind or (ended, detail)
            self.transport.abort()

    def pause(self) -> None:
        if not self._paused and self.transport is not None:
            self._paused = True
            self.transport.pause_reading()

    def resume(self) -> None:
        if self._paused and self.transport is not None:
            self._paused = False
            self.transport.resume_reading()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # a stream socket's transport is a Transport

    def data_received(self, data: bytes) -> None:
        framing = self._framing
        if framing is None:
            self.abort(Ended.MALFORMED, "bytes without a request")
        elif self._started:
            # Fed first: what stands behind the end of the message must never reach the client as its next response.
            sink = self._sink
            if sink is not None and self._feed(framing, data):
                if not framing.decodes:
                    sink.data(data)
                if framing.complete:
                    self._finish(framing)
        else:
            self._head_received(framing, data)

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        self._home.forget(self)
        sink, framing = self._sink, self._framing
        if sink is None or framing is None:
            return
        if error is None and self._kind is None and self._started and not _is_delimited(framing):
            # Neither length nor chunks: the end of the connection is the end of the message.
            self._release()
            sink.complete()
            return
        ended, detail = self._kind or self._closed_kind(error)
        stale = self._kind is None and self._served and not self._started and not self._held
        self._release()
        sink.failed(ended, detail, stale)

    # the response

    def _head_received(self, framing: ResponseFraming, data: bytes) -> None:
        if self._held:
            data = self._held + data
        while True:
            end = data.find(_HEAD_END) + 4
            if end < 4:
                self._held = data
                if len(data) > self._head_bytes:
                    self.abort(Ended.MALFORMED, "head too large")
                return
            if not self._feed(framing, data[:end]):
                return
            data = data[end:]
            if framing.has_head:
                break
        self._held = b""
        self._started = True
        if self._sink is not None:
            self._begin_body(framing, self._sink, data)

    def _begin_body(self, framing: ResponseFraming, sink: Sink, data: bytes) -> None:
        if self._head_only:
            framing.complete = True
            framing.excess = bool(data)
        if not sink.head(self, framing):
            self.abort(Ended.COMPLETE)
            return
        if data and not self._feed(framing, data):
            return
        if not (framing.decodes and data):
            sink.data(data)
        if framing.complete:
            self._finish(framing)

    def _feed(self, framing: ResponseFraming, data: bytes) -> bool:
        try:
            framing.feed(data)
        except HttpParserError as error:
            self.abort(Ended.UPSTREAM_BROKEN if self._started else Ended.MALFORMED, str(error))
            return False
        if framing.excess:
            self.abort(Ended.UPSTREAM_BROKEN if self._started else Ended.MALFORMED, "bytes after the message")
            return False
        return True

    def _finish(self, framing: ResponseFraming) -> None:
        sink = self._sink
        keep = framing.keep_alive and not framing.excess
        self._release()
        self._served = True
        # A paused connection must never be pooled: the next request on it would wait for ever.
        self.resume()
        if keep:
            self._home.give_back(self)
        elif self.transport is not None:
            self.transport.close()
        if sink is not None:
            sink.complete()

    def _release(self) -> None:
        if self._framing is not None:
            self._framing.release()
        self._framing = None
        self._sink = None
        self._held = b""
        self._started = False

    def _closed_kind(self, error: Exception | None) -> tuple[Ended, str]:
        detail = "closed" if error is None else str(error) or type(error).__name__
        return (Ended.UPSTREAM_BROKEN if self._started else Ended.CLOSED_EARLY), detail


def _is_delimited(framing: ResponseFraming) -> bool:
    return any(name in (b"content-length", b"transfer-encoding") for name, _ in framing.headers)
