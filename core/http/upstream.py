"""One keep-alive connection to an upstream, and whoever listens to its present response (a `Sink`).

A connection is idle (no sink), waits for a head, or passes a body on. It never decides about retries: it tells
its sink what happened and goes back to its target's pool, or closes.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol, cast

from httptools import HttpParserError

from core.http.excerpt import Excerpt
from core.http.flow import open_flow
from core.http.framing import DecodedFraming, ResponseFraming
from core.http.repeat import RememberedResponse, remember_response
from core.http.verdict import Ended

_EXCESS = "bytes after the message"
_HEAD_END = b"\r\n\r\n"
_MAX_MISSES = 4
_MISSES_BETWEEN = 64
"""Heads that were not the one before them: after a few, only one in so many is still remembered."""


class Sink(Protocol):
    """Who hears of a response. After `complete` or `failed` nothing more comes."""

    @property
    def decodes(self) -> bool:
        """Whether `data` gets the body without chunk framing."""

    def head(self, connection: "UpstreamConnection", framing: ResponseFraming) -> bool:
        """The final head arrived. False: the sink wants nothing of it; the connection closes itself."""

    def whole(self, remembered: RememberedResponse, digits: bytes, body: bytes) -> None:
        """Instead of `head` and `data`, where `decodes` is False: the whole response, with a head that is known."""

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

    remembered: RememberedResponse | None
    misses: int
    is_foreign: bool
    """Its heads are not remembered: hardly one is like the one before."""

    def give_back(self, connection: "UpstreamConnection") -> None: ...

    def forget(self, connection: "UpstreamConnection") -> None: ...


class UpstreamConnection(asyncio.Protocol):
    """See the module."""

    __slots__ = (
        "_drained", "_framing", "_head_bytes", "_head_only", "_held", "_home", "_is_full", "_kind", "_pass_on",
        "_paused", "_served", "_sink", "_started", "idle_since", "is_sending", "transport",
    )  # fmt: skip

    def __init__(self, home: Home, head_bytes: int) -> None:
        self._home = home
        self._head_bytes = head_bytes
        self._sink: Sink | None = None
        self._framing: ResponseFraming | None = None
        self._pass_on: Callable[[bytes], None] | None = None
        """Who takes the body's bytes, once it has begun."""
        self._held = b""
        self._head_only = False
        self._paused = False
        self._served = False
        self._started = False
        self._kind: tuple[Ended, str] | None = None
        self._is_full = False
        self._drained: asyncio.Future[None] | None = None
        self.is_sending = False
        """Whether the request's body is not through yet: then it cannot be anybody else's connection either."""
        self.idle_since = 0.0
        self.transport: asyncio.Transport | None = None

    def begin(self, sink: Sink, head: bytes, body: bytes, head_only: bool) -> None:
        """Send a request and tell `sink` what comes of it."""
        transport = self.transport
        if transport is None:
            sink.failed(Ended.CLOSED_EARLY, "closed", self._served)
            return
        self._sink = sink
        self._head_only = head_only
        if len(body) < 16384:
            transport.write(head + body)
        else:
            # The event loop sends both in one writev; joining would copy the body once more.
            transport.write(head)
            transport.write(body)

    async def send(self, data: bytes) -> bool:
        """More of the request's body; returns when there is room for the next. False: nobody takes it any more."""
        if self.transport is None or self._sink is None:
            return False
        self.transport.write(data)
        if self._is_full:
            self._drained = asyncio.get_running_loop().create_future()
            await self._drained
        return self.transport is not None and self._sink is not None

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
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(0)

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)

    def data_received(self, data: bytes) -> None:
        framing, pass_on = self._framing, self._pass_on
        if framing is None or pass_on is None:
            self._begin_answer(data)
            return
        # The framing comes first: what stands behind the end of the message must never reach the client as its next
        # response. Where the body is a stream, most of this is done in `core.http.flow`.
        try:
            framing.feed(data)
        except HttpParserError as error:
            self._body_over(data, error)
            return
        if framing.complete:
            self._body_over(data, None)
        else:
            pass_on(data)

    def flow(self, write: Callable[[bytes], object], excerpt: Excerpt) -> None:
        """The rest of the body goes to `write`, and its end to `excerpt`, instead of to the sink's `data`."""
        if self.transport is not None and self._framing is not None and not self._framing.complete:
            open_flow(self, self.transport, self._framing, write, excerpt, self._body_over)

    def _body_over(self, data: bytes, error: HttpParserError | None) -> None:
        """The read that the message ends with, or is broken by."""
        framing, pass_on = self._framing, self._pass_on
        if framing is None or pass_on is None:
            return
        if error is not None:
            self.abort(Ended.UPSTREAM_BROKEN, str(error))
        elif framing.excess:
            self.abort(Ended.UPSTREAM_BROKEN, _EXCESS)
        else:
            pass_on(data)
            self._finish(framing.keep_alive)

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        self.resume_writing()
        self._home.forget(self)
        sink, framing = self._sink, self._framing
        if sink is None:
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

    def _begin_answer(self, data: bytes) -> None:
        """Bytes before the body: of the head, or of nothing that was asked for."""
        sink, framing = self._sink, self._framing
        if sink is None:
            self.abort(Ended.MALFORMED, "bytes without a request")
        elif framing is not None:
            self._head_received(framing, sink, data)
        elif not self._recall(sink, data):
            self._framing = DecodedFraming(sink.data) if sink.decodes else ResponseFraming()
            self._head_received(self._framing, sink, data)

    def _recall(self, sink: Sink, data: bytes) -> bool:
        """Pass on a whole response with the head of the one before it. False: it is another."""
        remembered = self._home.remembered
        if remembered is None or sink.decodes or self._head_only:
            return False
        found = remembered.match(data)
        if found is None:
            return False
        self._home.misses = 0
        self._started = True
        sink.whole(remembered, *found)
        self._finish(keep=True)
        return True

    def _remember(self, framing: ResponseFraming, data: bytes, body_size: int) -> None:
        """Keep the head of a whole response that came in one read. An engine that says the time differs each second."""
        home = self._home
        home.misses += 1
        if home.misses < _MAX_MISSES or home.misses % _MISSES_BETWEEN == 0:
            home.remembered = remember_response(data, framing.status, framing.headers, body_size)

    def _head_received(self, framing: ResponseFraming, sink: Sink, data: bytes) -> None:
        if self._held:
            data = self._held + data
        whole = data
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
        self._begin_body(framing, sink, data)
        if framing.complete and framing.keep_alive and not framing.decodes and not self._home.is_foreign:
            self._remember(framing, whole, len(data))

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
            self._finish(framing.keep_alive and not framing.excess)
        else:
            self._pass_on = _drop if framing.decodes else sink.data

    def _feed(self, framing: ResponseFraming, data: bytes) -> bool:
        try:
            framing.feed(data)
        except HttpParserError as error:
            self.abort(Ended.UPSTREAM_BROKEN if self._started else Ended.MALFORMED, str(error))
            return False
        if framing.excess:
            self.abort(Ended.UPSTREAM_BROKEN if self._started else Ended.MALFORMED, _EXCESS)
            return False
        return True

    def _finish(self, keep: bool) -> None:
        sink = self._sink
        self._release()
        self._served = True
        # A paused connection must never be pooled: the next request on it would wait for ever.
        if self._paused:
            self.resume()
        if self._is_full:
            self.resume_writing()
        if keep and not self.is_sending:
            self._home.give_back(self)
        elif self.transport is not None:
            self.transport.close()
        if sink is not None:
            sink.complete()

    def _release(self) -> None:
        if self._framing is not None:
            self._framing.release()
        self._framing = self._pass_on = None
        self._sink = None
        self._held = b""
        self._started = False

    def _closed_kind(self, error: Exception | None) -> tuple[Ended, str]:
        detail = "closed" if error is None else str(error) or type(error).__name__
        return (Ended.UPSTREAM_BROKEN if self._started else Ended.CLOSED_EARLY), detail


def _is_delimited(framing: ResponseFraming | None) -> bool:
    return framing is None or any(name in (b"content-length", b"transfer-encoding") for name, _ in framing.headers)


def _drop(data: bytes) -> None:
    """A decoding framing has handed the body on itself."""
