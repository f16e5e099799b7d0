"""One request of a client: the ASGI `receive` and `send`, and the relay that an application may choose instead.

It belongs to its request and not to the connection, so that pipelined requests cannot be confused. Exactly one
of the two answers the client: once `relay` has passed a head on, what the application sends is dropped.
"""

import asyncio
from typing import Protocol

from core.http.asgi import PEER_EXTENSION, SPLICE_EXTENSION, ClientDisconnectedError, Headers, Message, Peer, Scope
from core.http.date import date_line
from core.http.heads import is_event_stream, upstream_lines
from core.http.incoming import Incoming
from core.http.patience import COMMENT, EVENT_ENDS, EventDialect, Patience, frame
from core.http.plan import RelayOutcome, RelayPlan
from core.http.refusal import APPLICATION_FAILED
from core.http.repeat import RememberedRequest
from core.http.request import build_scope
from core.http.splice import Relay
from core.http.status import BODILESS, STATUS_LINES
from core.http.websocket import WebSocket


class Connection(Protocol):
    """What a request needs of its connection (`core.http.protocol.ServerConnection`)."""

    transport: asyncio.Transport | None
    is_paused: bool
    is_draining: bool
    peer: Peer | None
    client: tuple[str, int] | None
    server: tuple[str, int | None] | None

    def request_done(self, stream: "ClientStream", *, clean: bool, reset: bool) -> None: ...

    def dispatch(self, stream: "ClientStream") -> None: ...

    def become_websocket(self, stream: "ClientStream") -> WebSocket: ...


class ClientStream:
    """A request whose body has arrived, and the way back to its client."""

    __slots__ = (
        "_body_sent", "_chunked", "_dialect", "_digits", "_direct_plan", "_drained", "_gone", "_head", "_headers",
        "_is_between_events", "_is_events", "_is_gone", "_is_over", "_is_relayed", "_patience", "_relay", "_sent_bytes",
        "_settled", "_silent", "_socket", "_started", "_was_asked", "added", "body", "connection", "failure",
        "has_begun", "incoming", "keep_alive", "method", "path", "query", "remembered", "task", "version",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913 - the parts of a request, made in one place; by position, for it is made each time
        self, connection: Connection, method: bytes, path: bytes, query: bytes, version: str, body: bytes,
        keep_alive: bool, headers: Headers | None, remembered: RememberedRequest | None, digits: bytes,
    ) -> None:  # fmt: skip
        """`headers` may be left to `remembered`, which knows them with these digits of their length."""
        self.connection = connection
        self.method = method
        self.path = path
        self.query = query
        self.version = version
        self.body = body
        """The whole body."""
        self.keep_alive = keep_alive and version == "1.1"
        self.remembered = remembered
        self._headers = headers
        self._digits = digits
        self.added = b""
        """Header lines for the answer, whoever gives it, each with its line end."""
        self.task: asyncio.Task[None] | None = None
        self.has_begun = False
        """Whether the client has got the head of a stream, and comments, before there was an answer."""
        self._relay: Relay | None = None
        self._gone: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._head: bytes | None = None
        self._body_sent = False
        self._started = False
        self._chunked = False
        self._silent = False
        self._is_gone = False
        self._is_over = False
        self._is_relayed = False
        self._is_events = False
        self._is_between_events = False
        self._sent_bytes = 0
        self._was_asked = False
        self._dialect: EventDialect | None = None
        self._patience: Patience | None = None
        self._settled: asyncio.Future[RelayOutcome | None] | None = None
        self._direct_plan: RelayPlan | None = None
        self._socket: WebSocket | None = None
        self.failure: tuple[RelayPlan, RelayOutcome] | None = None
        """Of a direct relay (`core.http.direct`), when the application is asked after it."""
        self.incoming: Incoming | None = None
        """The body, where it is read while it arrives; `body` is empty then."""

    @property
    def headers(self) -> Headers:
        """Of the request. Made when somebody asks: for one that is like the one before nobody does."""
        found = self._headers
        if found is None:
            found = self._headers = self.remembered.headers(self._digits) if self.remembered is not None else []
        return found

    async def relay(self, plan: RelayPlan, *, path: bytes = b"", body: bytes | None = None) -> RelayOutcome | None:
        """Let an upstream answer this request.

        `path` (with its query) and `body` are the plan's or the client's own unless given. Returns None when there
        is nothing left to answer: the head of a response was passed on (the rest follows by itself; `plan.ended`
        tells of the end), or the client left. Otherwise the outcome says why no target gave a response, and the
        application answers as if it had never asked.
        """
        if self._is_gone or self.connection.transport is None:
            return None
        self._settled = asyncio.get_running_loop().create_future()
        self._is_relayed = True
        self._relay = Relay(self, plan, path or plan.path or self._target(), self.body if body is None else body)
        self._relay.start()
        return await self._settled

    def accept_websocket(self) -> WebSocket:
        """Answer with a websocket, and nothing else; it is closed when the application returns.

        Raises: WebSocketExpected when the request asks for none; ClientDisconnectedError.
        """
        if self._is_gone or self.connection.transport is None:
            raise ClientDisconnectedError("the client has left")
        self._socket = self.connection.become_websocket(self)
        self._is_relayed = self._is_over = True
        return self._socket

    def relay_directly(self, plan: RelayPlan) -> None:
        """As `relay`, for who has no coroutine to wait in. When no target gives a response, `failure` says why, and
        the application is asked after all.
        """
        self._direct_plan = plan
        self._is_relayed = True
        self._relay = Relay(self, plan, plan.path or self._target(), self.body)
        self._relay.start()

    def _target(self) -> bytes:
        return self.path + b"?" + self.query if self.query else self.path

    def expect_events(self, dialect: EventDialect) -> None:
        """The client asked for server-sent events: from now on it hears comments while there is nothing to tell.

        A relay that is begun by `relay_directly` says so by its plan.
        """
        self._dialect = dialect

    # ASGI

    def scope(self) -> Scope:
        connection = self.connection
        scope = build_scope(self.method, self.path, self.query, self.version, self.headers)
        scope["client"] = connection.client
        scope["server"] = connection.server
        extensions: dict[str, object] = {SPLICE_EXTENSION: self}
        if connection.peer is not None:
            extensions[PEER_EXTENSION] = connection.peer
        scope["extensions"] = extensions
        return scope

    async def receive(self) -> Message:
        if not self._body_sent:
            if self.incoming is not None:
                return await self._receive_part(self.incoming)
            self._body_sent = True
            return {"type": "http.request", "body": self.body, "more_body": False}
        if not self._is_gone and not self._is_over:
            self._gone = self._gone or asyncio.get_running_loop().create_future()
            await self._gone
        return {"type": "http.disconnect"}

    async def _receive_part(self, incoming: Incoming) -> Message:
        if not self._was_asked:
            # Falcon takes the first event before any resource runs, and a resource may read `incoming` itself.
            self._was_asked = True
            return {"type": "http.request", "body": b"", "more_body": True}
        part = await incoming.read()
        self._body_sent = not part
        return {"type": "http.request", "body": part, "more_body": bool(part)}

    async def send(self, message: Message) -> None:
        if self._is_relayed:
            return
        transport = self.connection.transport
        if self._is_gone or transport is None:
            raise ClientDisconnectedError("the client has left")
        if message["type"] == "http.response.start":
            self._head = self._render_head(message)
            return
        body = message.get("body", b"")
        if not isinstance(body, bytes):
            body = bytes(body)  # type: ignore[call-overload]  # bytearray or memoryview
        more = bool(message.get("more_body", False))
        breaks = False
        if self.has_begun and self._patience is not None:
            body, breaks = self._patience.pass_on(body, more=more)
        if body and self._is_events:
            self._is_between_events = body.endswith(EVENT_ENDS)
            self._sent_bytes += len(body)
        data = self._frame(body, more or breaks)
        if self._head is not None:
            data, self._head, self._started = self._head + data, None, True
        if data:
            transport.write(data)
            if self.connection.is_paused and more:
                await self._wait_drained()
        if not more and not self._is_over:
            self.finish(clean=not breaks, reset=False)

    def _render_head(self, message: Message) -> bytes:
        status = message["status"]
        fields = message.get("headers", ())
        if not isinstance(status, int) or not isinstance(fields, (list, tuple)):
            raise TypeError("http.response.start has no status or headers")
        self._is_events = is_event_stream(list(fields))
        if self.has_begun and self._patience is not None:
            self._patience.answer_begins(status, list(fields))
            return b""
        lines = [STATUS_LINES[status], date_line(), self.added]
        has_length = False
        for name, value in fields:
            if name == b"content-length":
                has_length = True
            if b"\n" in value or b"\r" in value or b"\n" in name or b"\r" in name:
                raise ValueError("a response header has a line break")
            lines.append(b"%b: %b\r\n" % (name, value))
        self._silent = self.method == b"HEAD" or status in BODILESS
        if not has_length and not self._silent:
            if self.version == "1.1":
                self._chunked = True
                lines.append(b"transfer-encoding: chunked\r\n")
            else:
                self.keep_alive = False
        self.keep_alive = self.keep_alive and not self.connection.is_draining
        if self.incoming is not None and not self.incoming.is_complete:
            self.keep_alive = False
        if not self.keep_alive:
            lines.append(b"connection: close\r\n")
        lines.append(b"\r\n")
        return b"".join(lines)

    def _frame(self, body: bytes, more: bool) -> bytes:
        if self._silent:
            return b""
        if not self._chunked:
            return body
        chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
        return chunk if more else chunk + b"0\r\n\r\n"

    # the silence of a stream

    def check_silence(self, now_s: float, limit_s: float) -> None:
        """Called by the sweep: let a client that waits for events hear something, if it heard nothing for so long."""
        patience = self._patience
        if patience is None:
            dialect = self._dialect or (self._direct_plan.events() if self._direct_plan is not None else None)
            if dialect is None:
                return
            patience = self._patience = Patience(dialect, now_s)
        relay, transport = self._relay, self.connection.transport
        size = self._sent_bytes + (relay.size_bytes if relay is not None else 0)
        if not patience.is_due(size, now_s, limit_s):
            return
        if transport is None or self.connection.is_paused or self._is_over:
            return
        if relay is not None and relay.has_head:
            relay.comment(COMMENT)
        elif self._started:
            if self._is_between_events or (self.has_begun and not self._sent_bytes):
                transport.write(frame(COMMENT, chunked=self._chunked))
        elif self._head is not None:
            if self._is_events:
                self._started = True
                transport.write(self._head + frame(COMMENT, chunked=self._chunked))
                self._head = b""
        else:
            self._begin_events(patience, transport)

    def _begin_events(self, patience: Patience, transport: asyncio.Transport) -> None:
        self._started = self.has_begun = True
        self._chunked = self.version == "1.1"
        self.keep_alive = self.keep_alive and not self.connection.is_draining
        transport.write(patience.begin(chunked=self._chunked, close=not self.keep_alive, added=self.added))

    async def _wait_drained(self) -> None:
        self._drained = asyncio.get_running_loop().create_future()
        await self._drained
        if self._is_gone:
            raise ClientDisconnectedError("the client has left")

    # what the connection calls

    def client_gone(self) -> None:
        """The client closed its side."""
        if self._is_gone or self._is_over:
            return
        self._is_gone = True
        if self.incoming is not None:
            self.incoming.abandon()
        _set(self._gone)
        _set(self._drained)
        if self._relay is not None:
            self._relay.client_gone()

    @property
    def client(self) -> tuple[str, int] | None:
        """The other end's address; None on a unix socket."""
        return self.connection.client

    @property
    def is_relayed(self) -> bool:
        return self._is_relayed

    def pause(self) -> None:
        if self._relay is not None:
            self._relay.pause()

    def resume(self) -> None:
        if self._relay is not None:
            self._relay.resume()
        _set(self._drained)

    # what the relay needs (core.http.splice.Client)

    def upstream_lines(self, without: frozenset[bytes]) -> bytes:
        if without:
            return upstream_lines([field for field in self.headers if field[0] not in without])
        remembered = self.remembered
        if remembered is None:
            return upstream_lines(self.headers)
        if not remembered.upstream_lines:
            remembered.upstream_lines = upstream_lines(self.headers)
        return remembered.upstream_lines

    def relay_settled(self, outcome: RelayOutcome | None) -> None:
        if outcome is not None:
            self._is_relayed = False
            self._relay = None
        if self._settled is not None:
            _set_result(self._settled, outcome)
        elif outcome is not None and self._direct_plan is not None:
            self.failure = (self._direct_plan, outcome)
            self.connection.dispatch(self)

    def finish(self, *, clean: bool, reset: bool) -> None:
        """The answer is over, as well as it is going to be."""
        self._relay = None
        self._is_over = True
        if self._gone is not None:
            _set(self._gone)
        self.body = b""
        self.connection.request_done(self, clean=clean, reset=reset)

    # what the service calls

    def application_over(self, failed: bool) -> None:
        """The application returned or raised. An answer that it still owes is made up for."""
        if self._socket is not None:
            self._socket.finish(failed=failed)
        if self._is_over or self._is_relayed:
            return
        transport = self.connection.transport
        if transport is None:
            return
        self.keep_alive = False
        if not self._started:
            transport.write(APPLICATION_FAILED.render(head_only=self.method == b"HEAD"))
            self.finish(clean=True, reset=False)
        else:
            self.finish(clean=False, reset=not self._chunked)


def _set_result(waiter: asyncio.Future[RelayOutcome | None], outcome: RelayOutcome | None) -> None:
    if not waiter.done():
        waiter.set_result(outcome)


def _set(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
