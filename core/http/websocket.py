"""One websocket of a client: messages both ways, on the connection that asked for it.

wsproto does the framing; here is what it costs. An application that is asked by a request that offers an upgrade
(`core.http.direct.WebSocketApp`) judges it like any other request, and takes it by `ClientStream.accept_websocket`, or
answers it. From then on the connection is the socket's, and the service drains and sweeps it as it does the others.

Bounds: messages from the client are small and few wait to be read; one message at a time waits to be taken by the
client; one that takes nothing, or does not answer pings, is cut off. Nothing is compressed: a window for each of
thousands of idle sockets costs more than it saves.
"""

import asyncio
from collections import deque
from time import monotonic
from typing import Protocol

from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Event, Message, Ping, TextMessage
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from core.errors import UsageError
from core.http.asgi import Headers
from core.http.limits import HttpLimits

NORMAL, GOING_AWAY, POLICY, TOO_LARGE, BROKEN, TRY_LATER = 1000, 1001, 1008, 1009, 1011, 1013
_WAITING = 16
"""Messages of the client that wait to be read, until its connection is not read any more."""
_GOODBYE_S = 1.0


class WebSocketExpected(UsageError):
    """The path is a websocket's, and the request asks for none, or wrongly."""

    code = "websocket_expected"


class WebSocketClosedError(ConnectionError):
    """The other end has closed, or is gone."""


class SocketOwner(Protocol):
    """What a socket needs of the service (`core.http.server.HttpService`)."""

    limits: HttpLimits
    is_draining: bool

    def opened(self, connection: "WebSocket") -> None: ...

    def closed(self, connection: "WebSocket") -> None: ...


class WebSocket(asyncio.Protocol):
    """See the module. Made by `ClientStream.accept_websocket`."""

    __slots__ = (
        "_close_by", "_closed", "_drained", "_heard_s", "_inbox", "_is_deaf", "_is_paused", "_more", "_owner", "_part",
        "_pinged_s", "_stalls_at", "_transport", "_waiting_bytes", "_wire",
    )  # fmt: skip

    def __init__(self, owner: SocketOwner, headers: Headers, target: bytes) -> None:
        """Raises: WebSocketExpected when this is no valid handshake."""
        self._owner = owner
        self._wire = WSConnection(ConnectionType.SERVER)
        try:
            self._wire.initiate_upgrade_connection(headers, target)
        except RemoteProtocolError as error:
            raise WebSocketExpected(
                f"this is a websocket, and the request is no handshake of one: {error}",
                hint="Connection: Upgrade, Upgrade: websocket, Sec-WebSocket-Version: 13",
            ) from None
        self._transport: asyncio.Transport | None = None
        self._inbox: deque[str | bytes] = deque()
        self._part = bytearray()
        self._more = asyncio.Event()
        self._closed = False
        self._is_deaf = False
        self._is_paused = False
        self._drained: asyncio.Future[None] | None = None
        self._waiting_bytes = 0
        self._heard_s = self._pinged_s = monotonic()
        self._close_by = self._stalls_at = float("inf")

    # for the application

    @property
    def is_closed(self) -> bool:
        return self._closed

    async def receive(self) -> str | bytes:
        """The client's next message. Raises: WebSocketClosedError."""
        while not self._inbox:
            if self._closed:
                raise WebSocketClosedError("the client has left")
            self._more.clear()
            await self._more.wait()
        message = self._inbox.popleft()
        if self._is_deaf and len(self._inbox) < _WAITING // 2 and self._transport is not None:
            self._is_deaf = False
            self._transport.resume_reading()
        return message

    async def send(self, message: str | bytes) -> None:
        """Returns when the client's side of the network has taken it. Raises: WebSocketClosedError."""
        event: Event = TextMessage(message) if isinstance(message, str) else BytesMessage(message)
        if not self._write(event):
            raise WebSocketClosedError("the client has left")
        if self._is_paused:
            self._drained = asyncio.get_running_loop().create_future()
            await self._drained
            if self._closed:
                raise WebSocketClosedError("the client has left")

    def close(self, code: int = NORMAL, reason: str = "") -> None:
        """Say goodbye; the connection ends when the client answers, or a little later."""
        if self._write(CloseConnection(code, reason or None)):
            self._end()
            self._close_by = monotonic() + _GOODBYE_S

    # what the connection before it calls

    def start(self, transport: asyncio.Transport, early: bytes, *, is_paused: bool) -> None:
        """Take the connection over. `early`: what the client sent without waiting."""
        self._transport = transport
        self._is_paused = is_paused
        transport.set_protocol(self)
        transport.write(self._wire.send(AcceptConnection()))
        if self._owner.is_draining:
            self.close(GOING_AWAY, "the server stops")
        elif early:
            self.data_received(early)

    # asyncio.Protocol

    def data_received(self, data: bytes) -> None:
        self._heard_s = monotonic()
        try:
            self._wire.receive_data(data)
            for event in self._wire.events():
                self._take(event)
        except RemoteProtocolError as error:
            if isinstance(error.event_hint, CloseConnection):
                self._write(CloseConnection(error.event_hint.code))
            self._hang_up()
        if len(self._inbox) >= _WAITING and not self._is_deaf and self._transport is not None:
            self._is_deaf = True
            self._transport.pause_reading()

    def eof_received(self) -> None:
        self._hang_up()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._end()
        self._owner.closed(self)

    def pause_writing(self) -> None:
        self._is_paused = True
        self._waiting_bytes = self._transport.get_write_buffer_size() if self._transport is not None else 0
        self._stalls_at = monotonic() + self._owner.limits.stall_timeout_s

    def resume_writing(self) -> None:
        self._is_paused = False
        self._stalls_at = float("inf")
        _set(self._drained)

    # what the service calls

    def drain(self) -> None:
        self.close(GOING_AWAY, "the server stops")

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def check_deadline(self, now: float) -> None:
        transport, limits = self._transport, self._owner.limits
        if transport is None:
            return
        if self._is_paused and now >= self._stalls_at:
            before, self._waiting_bytes = self._waiting_bytes, transport.get_write_buffer_size()
            if self._waiting_bytes >= before:
                transport.abort()
                return
            self._stalls_at = now + limits.stall_timeout_s
        if now >= self._close_by or now - self._heard_s >= limits.pong_s:
            transport.abort()
        elif now - max(self._heard_s, self._pinged_s) >= limits.ping_s and not self._is_paused:
            self._pinged_s = now
            self._write(Ping())

    def finish(self, *, failed: bool) -> None:
        """The application has returned, or raised."""
        self.close(BROKEN if failed else NORMAL)

    def _take(self, event: Event) -> None:
        if isinstance(event, Message):
            data = event.data
            self._part += data.encode() if isinstance(data, str) else data
            if len(self._part) > self._owner.limits.message_bytes:
                self.close(TOO_LARGE, "the message is too large")
                self._part = bytearray()
            elif event.message_finished:
                whole, self._part = bytes(self._part), bytearray()
                if not self._closed:
                    self._inbox.append(whole.decode() if isinstance(event, TextMessage) else whole)
                    self._more.set()
        elif isinstance(event, Ping):
            if not self._is_paused:  # who takes nothing needs no answers
                self._write(event.response())
        elif isinstance(event, CloseConnection):
            # The client's own, or what wsproto makes of a broken frame: its words for that are none of the client's.
            self._write(CloseConnection(event.code))
            self._hang_up()

    def _write(self, event: Event) -> bool:
        """False: there is nobody any more."""
        if self._transport is None or self._transport.is_closing():
            return False
        if self._closed and not isinstance(event, CloseConnection):
            return False
        if self._wire.state not in (ConnectionState.OPEN, ConnectionState.REMOTE_CLOSING):
            return False
        try:
            self._transport.write(self._wire.send(event))
        except LocalProtocolError:
            return False
        return True

    def _hang_up(self) -> None:
        self._end()
        if self._transport is not None and not self._transport.is_closing():
            # Not for longer than a goodbye takes: what waits to be written may never be taken.
            self._close_by = min(self._close_by, monotonic() + _GOODBYE_S)
            self._transport.close()

    def _end(self) -> None:
        self._closed = True
        self._more.set()
        _set(self._drained)


def _set(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
