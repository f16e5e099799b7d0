"""One client connection: HTTP/1.1 requests in, one answer after the other out.

httptools (llhttp) parses; `core.http.request` decides which heads are taken. A request whose body has arrived
becomes a `ClientStream`, and the service runs the application on it. While one is being answered, what the client
sends is kept unparsed up to a bound; the connection goes on reading, so that a client that leaves is noticed.
A client that closes its sending side has left (as for nginx): nobody who waits for an answer does that.
"""

import asyncio
import socket
import struct
from collections import deque
from time import monotonic
from typing import NoReturn, Protocol, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from core.http.asgi import Headers, Peer
from core.http.incoming import Incoming
from core.http.limits import HttpLimits
from core.http.refusal import BODY_TOO_LARGE, HEAD_TIMED_OUT, HEAD_TOO_LARGE, MALFORMED, PIPELINE_TOO_LONG, Refusal
from core.http.repeat import RememberedRequest, remember_request
from core.http.request import is_form, offers_websocket, read_head, split_target, without_upgrade
from core.http.stream import ClientStream
from core.http.tcp import has_left
from core.http.websocket import WebSocket

_NEVER = float("inf")
_LINGER_RESET = struct.pack("ii", 1, 0)
_CREDENTIALS = struct.Struct("3i")
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_MAX_MISSES = 4
"""Heads in a row that were not those before them, until a connection gives up remembering."""


class Service(Protocol):
    """What a connection needs of its service (`core.http.server.HttpService`)."""

    limits: HttpLimits
    form_limits: HttpLimits
    streamed_paths: frozenset[bytes]
    is_draining: bool

    def takes_websocket(self, path: bytes) -> bool: ...

    def opened(self, connection: "ServerConnection | WebSocket") -> None: ...

    def closed(self, connection: "ServerConnection | WebSocket") -> None: ...

    def run(self, stream: ClientStream) -> None: ...

    def dispatch(self, stream: ClientStream) -> None: ...

    def abandoned(self, stream: ClientStream) -> None: ...


class _RefusedError(Exception):
    """Stops the parser inside a callback."""


class ServerConnection(asyncio.Protocol):
    """See the module."""

    __slots__ = (
        "_active", "_body_size", "_closing", "_deadline", "_fields", "_head_size", "_headers", "_held", "_in_body",
        "_incoming", "_is_deaf", "_is_fresh", "_limits", "_misses", "_owes_continue", "_parser", "_parts", "_queued",
        "_refusal", "_remembered", "_service", "_split", "_target", "_version", "_waiting_bytes", "client",
        "is_draining", "is_paused", "peer", "server", "transport",
    )  # fmt: skip

    def __init__(self, service: Service) -> None:
        self._service = service
        self._limits = service.limits
        self._parser: HttpRequestParser | None = HttpRequestParser(self)
        self._active: ClientStream | None = None
        self._queued: deque[ClientStream] | None = None
        self._held: bytearray | None = None
        self._refusal: Refusal | None = None
        self._closing = False
        self._deadline = _NEVER
        self._headers: Headers = []
        self._fields: Headers = []
        self._target = b""
        self._split: tuple[bytes, bytes] = (b"", b"")
        self._version = "1.1"
        self._parts: list[bytes] = []
        self._incoming: Incoming | None = None
        """Of the present request, where it is read while it arrives."""
        self._head_size = 0
        self._body_size = 0
        self._in_body = False
        self._owes_continue = False
        self._waiting_bytes = 0
        self._remembered: RememberedRequest | None = None
        self._misses = 0
        self._is_deaf = False
        self._is_fresh = True
        self.is_draining = False
        """Whether the present answer is the last."""
        self.is_paused = False
        self.transport: asyncio.Transport | None = None
        self.peer: Peer | None = None
        self.client: tuple[str, int] | None = None
        self.server: tuple[str, int | None] | None = None

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if transport.get_extra_info("sslcontext") is None:
            # uvloop writes at once what is over the limit, and the rest one turn of the loop and one more poll later.
            # Under TLS every write would reach a limit of nothing: half of them would pause us, with nobody to resume.
            self.transport.set_write_buffer_limits(0)
        self.is_draining = self._service.is_draining
        self._read_addresses(transport)
        self._deadline = monotonic() + self._limits.head_timeout_s
        self._service.opened(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        self._parser = None
        self._held = self._queued = None
        self._service.closed(self)
        if self._active is not None:
            active, self._active = self._active, None
            active.client_gone()
            self._service.abandoned(active)

    def eof_received(self) -> None:
        if self._active is not None and self.transport is not None:
            # Not close(): it would wait for what the client no longer reads.
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        if self._active is not None and not (self._in_body and self._incoming is not None):
            self._hold(data)
        else:
            self._feed(data)

    def pause_writing(self) -> None:
        self.is_paused = True
        self._waiting_bytes = self.transport.get_write_buffer_size() if self.transport is not None else 0
        self._deadline = monotonic() + self._limits.stall_timeout_s
        if self._active is not None:
            self._active.pause()

    def resume_writing(self) -> None:
        self.is_paused = False
        self._deadline = _NEVER if self._active is not None else monotonic() + self._limits.idle_timeout_s
        if self._active is not None:
            self._active.resume()

    # parsing

    def _feed(self, data: bytes) -> None:
        parser = self._parser
        if parser is None:
            return
        begins, is_first = not self._head_size and not self._in_body, self._is_fresh
        if begins and self._remembered is not None and self._recall(self._remembered, data):
            return
        if not self._in_body:
            self._head_size += len(data)
        try:
            parser.feed_data(data)
        except HttpParserUpgrade as upgrade:
            self._decline_upgrade(data[upgrade.args[0] :])
            return
        except HttpParserError:
            self._refusal = self._refusal or MALFORMED
            if self._incoming is not None and not self._incoming.is_complete:
                self._incoming.refuse(self._refusal)
        if self._active is not None:  # the usual request: it came in one read
            # The first is not remembered: most connections that bring a stream bring no second one.
            if begins and not is_first and self._misses < _MAX_MISSES and self._incoming is None:
                self._remember(self._active, data)
            return
        if self._refusal is None and not self._in_body and self._head_size > self._limits.head_bytes:
            self._refusal = HEAD_TOO_LARGE
        if self._refusal is not None:
            self._refuse(self._refusal)
        elif begins and not self._in_body:
            self._deadline = monotonic() + self._limits.head_timeout_s

    def on_message_begin(self) -> None:
        self._headers = self._fields = []
        self._target = b""

    def on_url(self, part: bytes) -> None:
        self._target = self._target + part if self._target else part

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        parser = self._parser
        if parser is None:
            raise _RefusedError
        self._version = parser.get_http_version()
        method = parser.get_method()
        if self._head_size > self._limits.head_bytes and self._exact_head_size() > self._limits.head_bytes:
            self._stop(HEAD_TOO_LARGE)
        is_form = self._is_form(method)
        limits = self._service.form_limits if is_form else self._limits
        facts = read_head(method, self._version, self._headers, limits)
        if isinstance(facts, Refusal):
            self._stop(facts)
        split = split_target(self._target)
        if isinstance(split, Refusal):
            self._stop(split)
        self._split = split
        self._fields = []  # what comes now are trailers, and nobody may add to a head that was judged
        self._in_body = True
        self._body_size = 0
        if facts.expects_continue and not parser.should_upgrade():
            if self._active is None and self.transport is not None:
                self.transport.write(_CONTINUE)
            else:
                self._owes_continue = True
        if is_form and not parser.should_upgrade():
            self._incoming = Incoming(facts.length, self._hold_back)
            self._start(self._make_stream(parser, b"", self._incoming))
        if facts.length != 0:
            self._deadline = monotonic() + self._limits.body_timeout_s

    def on_body(self, part: bytes) -> None:
        self._body_size += len(part)
        if self._incoming is not None:
            if self._body_size > self._limits.form_bytes:
                self._stop(BODY_TOO_LARGE)
            self._incoming.feed(part)
        elif self._body_size > self._limits.body_bytes:
            self._stop(BODY_TOO_LARGE)
        else:
            self._parts.append(part)
        self._deadline += len(part) / self._limits.body_rate_bytes

    def on_message_complete(self) -> None:
        parser = self._parser
        if parser is None or parser.should_upgrade():
            return
        self._in_body = False
        self._owes_continue = False
        self._head_size = 0
        if self._incoming is not None and not self._incoming.is_complete:
            self._incoming.finish()
            self._deadline = _NEVER
            return
        parts = self._parts
        body = b"" if not parts else parts[0] if len(parts) == 1 else b"".join(parts)
        stream = self._make_stream(parser, body)
        if parts:
            self._parts = []
        if self._active is None:
            self._start(stream)
            return
        if self._queued is None:
            self._queued = deque()
        if len(self._queued) >= self._limits.pipeline_requests:
            self._stop(PIPELINE_TOO_LONG)
        self._queued.append(stream)

    def _make_stream(self, parser: HttpRequestParser, body: bytes, incoming: Incoming | None = None) -> ClientStream:
        path, query = self._split
        stream = ClientStream(
            self, parser.get_method(), path, query, self._version, body, parser.should_keep_alive(), self._headers,
            None, b"",
        )  # fmt: skip
        stream.incoming = incoming
        return stream

    def _is_form(self, method: bytes) -> bool:
        """Whether the body is read by the application while it arrives. Behind other requests it is not."""
        paths = self._service.streamed_paths
        if not paths or method != b"POST" or self._active is not None or self._incoming is not None:
            return False
        return self._target.partition(b"?")[0] in paths and is_form(self._headers)

    def _hold_back(self, holds: bool) -> None:
        """Read nothing from the client for now; nobody tells us meanwhile when it leaves: the sweep asks."""
        if self.transport is None or self._is_deaf == holds:
            return
        self._is_deaf = holds
        if holds:
            self.transport.pause_reading()
        else:
            self._deadline = monotonic() + self._limits.body_timeout_s if self._in_body else _NEVER
            self.transport.resume_reading()

    def _exact_head_size(self) -> int:
        # `_head_size` counts whole reads, so that the usual request costs no addition per field.
        return len(self._target) + sum(len(name) + len(value) + 4 for name, value in self._headers)

    def _stop(self, refusal: Refusal) -> NoReturn:
        self._refusal = refusal
        raise _RefusedError

    def _recall(self, remembered: RememberedRequest, data: bytes) -> bool:
        found = remembered.match(data)
        if found is None or len(found[1]) > self._limits.body_bytes:
            return False
        self._misses = 0
        digits, body = found
        stream = ClientStream(
            self, remembered.method, remembered.path, remembered.query, "1.1", body, True, None, remembered, digits
        )
        self._start(stream)
        return True

    def _remember(self, stream: ClientStream, data: bytes) -> None:
        self._misses += 1
        remembered = None
        if stream.keep_alive and not self._queued:
            remembered = remember_request(data, stream.headers, len(stream.body))
        if remembered is not None:
            remembered.method, remembered.path, remembered.query = stream.method, stream.path, stream.query
        self._remembered = remembered

    def _decline_upgrade(self, rest: bytes) -> None:
        parser = self._parser
        if parser is None:
            return
        has_turn = self._active is None and self._service.takes_websocket(self._split[0])
        if has_turn and offers_websocket(parser.get_method(), self._version, self._headers):
            self._in_body = False
            stream = self._make_stream(parser, b"")
            stream.keep_alive = False  # who is refused is answered, and what may follow is no request
            self._hold(rest)
            self._start(stream)
            return
        head = without_upgrade(parser.get_method(), self._target, self._version, self._headers)
        self._parser = HttpRequestParser(self)
        self._in_body = False
        self._head_size = 1
        self._feed(head + rest)

    # one request after the other

    def _start(self, stream: ClientStream) -> None:
        self._active = stream
        self._is_fresh = False
        self._deadline = _NEVER
        self._service.run(stream)

    def _hold(self, data: bytes) -> None:
        if self._held is None:
            self._held = bytearray()
        self._held += data
        if len(self._held) > self._limits.pipeline_bytes and self.transport is not None:
            # Nobody tells us now when the client leaves: the sweep asks.
            self._is_deaf = True
            self.transport.pause_reading()

    def dispatch(self, stream: ClientStream) -> None:
        if stream is self._active:
            self._service.dispatch(stream)

    def become_websocket(self, stream: ClientStream) -> WebSocket:
        """The connection is the socket's from now on. Raises: WebSocketExpected, and stays as it is."""
        target = stream.path + b"?" + stream.query if stream.query else stream.path
        socket_ = WebSocket(self._service, stream.headers, target)
        transport, self.transport = self.transport, None
        held = bytes(self._held or b"")
        self._parser = self._active = self._held = None
        self._service.opened(socket_)
        self._service.closed(self)
        if transport is not None:
            if self._is_deaf:
                transport.resume_reading()
            socket_.start(transport, held, is_paused=self.is_paused)
        return socket_

    def request_done(self, stream: ClientStream, *, clean: bool, reset: bool) -> None:
        """The answer of `stream` is written: go on with what the client sent meanwhile, or close."""
        if stream is not self._active:
            return
        self._active = None
        incoming, self._incoming = self._incoming, None
        transport = self.transport
        if transport is None:
            return
        if clean and incoming is not None and not incoming.is_complete:
            self._hold_back(False)
            self._close(linger=True)  # it answered without having read all: what still comes is thrown away
        elif not clean:
            self._close_unclean(transport, reset)
        elif not stream.keep_alive:
            self._close()
        elif self._queued:
            self._start(self._queued.popleft())
        elif self._refusal is not None:
            self._refuse(self._refusal)
        else:
            self._listen(transport)

    def _listen(self, transport: asyncio.Transport) -> None:
        if not self.is_paused:  # else the answer is still waiting to be taken, and has its limit
            begun = self._head_size or self._in_body
            self._deadline = monotonic() + (self._limits.head_timeout_s if begun else self._limits.idle_timeout_s)
        if self._owes_continue:
            self._owes_continue = False
            transport.write(_CONTINUE)
        if self._held is not None:
            held, self._held = bytes(self._held), None
            if self._is_deaf:
                self._is_deaf = False
                transport.resume_reading()
            self._feed(held)
        elif self.is_draining and not self._head_size:
            self._close()

    # endings

    def _refuse(self, refusal: Refusal) -> None:
        if self.transport is not None:
            self.transport.write(refusal.render())
            self._close(linger=True)

    def _close(self, *, linger: bool = False) -> None:
        transport = self.transport
        if transport is None:
            return
        if linger and transport.can_write_eof():
            # Closing while the client still sends would reset the connection before the refusal is read.
            self._closing = True
            self._held = self._queued = None
            self._deadline = monotonic() + self._limits.linger_s
            transport.write_eof()
        else:
            self._deadline = monotonic() + self._limits.stall_timeout_s
            self._closing = True
            transport.close()

    def _close_unclean(self, transport: asyncio.Transport, reset: bool) -> None:
        self._closing = True
        if reset:
            raw = transport.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_RESET)
            transport.abort()
        else:
            self._deadline = monotonic() + self._limits.stall_timeout_s
            transport.close()

    def drain(self) -> None:
        """Close now if nothing is being asked or answered; else the present answer is the last."""
        self.is_draining = True
        if self._active is not None or self._head_size or self._in_body:
            return
        if self._is_fresh:
            # Accepted a moment ago: its first request may be on its way, or here and not read yet.
            self._deadline = min(self._deadline, monotonic() + self._limits.sweep_s)
        else:
            self._close()

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def check_deadline(self, now: float) -> None:
        """Called by the service's sweep."""
        if self.transport is None:
            return
        if self._active is not None:
            self._active.check_silence(now, self._limits.comment_s)
        if self._is_deaf and has_left(self.transport.get_extra_info("socket")):
            self.transport.abort()
            return
        if now < self._deadline:
            return
        if self._is_deaf and self._incoming is not None:
            self._deadline = now + self._limits.body_timeout_s  # it is we who do not read
            return
        if self.is_paused and self._takes_bytes(self.transport):
            self._deadline = now + self._limits.stall_timeout_s
            return
        waits_for_request = self._active is None and (self._head_size or self._in_body)
        if waits_for_request and not self._closing and not self.is_paused:
            self._refuse(HEAD_TIMED_OUT)
        else:
            self.transport.abort()

    def _takes_bytes(self, transport: asyncio.Transport) -> bool:
        """Whether less waits to be written than when this was asked last."""
        before, self._waiting_bytes = self._waiting_bytes, transport.get_write_buffer_size()
        return self._waiting_bytes < before

    def _read_addresses(self, transport: asyncio.BaseTransport) -> None:
        raw = transport.get_extra_info("socket")
        if raw.family == socket.AF_UNIX:
            packed = raw.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            self.peer = Peer(*_CREDENTIALS.unpack(packed))
            return
        peername, sockname = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        self.client = (peername[0], peername[1]) if peername else None
        self.server = (sockname[0], sockname[1]) if sockname else None
