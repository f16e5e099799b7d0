"""One server connection without a socket: what it makes of bytes, however they are cut."""

import asyncio
import socket
from dataclasses import dataclass, field, replace

from core.http.limits import DEFAULT_LIMITS
from core.http.protocol import ServerConnection
from core.http.stream import ClientStream
from core.http.websocket import WebSocket

# How many requests wait in line, and when an unfinished head is found too long, depends on how they are cut: these
# limits have tests of their own.
LIMITS = replace(DEFAULT_LIMITS, body_bytes=5000, head_bytes=1 << 20, pipeline_requests=1_000_000)
SAMPLES = [
    b"POST /v1/x?a=b HTTP/1.1\r\nHost: x\r\nContent-Length: 13\r\n\r\n" + b'{"model":"m"}',
    b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nT: v\r\n\r\n",
    b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: A\r\n\r\n",
    b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" * 3,
    b"GET http://h:1/p HTTP/1.0\r\n\r\n",
    b"POST /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc",
    b"HEAD /a HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\n\r\n",
]
WORDS = [
    b"Content-Length: 3\r\n", b"Content-Length: 0\r\n", b"Transfer-Encoding: chunked\r\n", b"Host: y\r\n", b"\r\n\r\n",
    b"Connection: close\r\n", b"Upgrade: h2c\r\n", b"0\r\n\r\n", b"HTTP/1.0", b"HTTP/2.0", b": ", b";", b"chunked",
    b"GET / ", b"x" * 4000,
]  # fmt: skip

Told = list[tuple[str, bytes, bytes, bytes]]


class _Transport(asyncio.Transport):
    """Keeps what is written; is a socket only by name."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closing = False

    def get_extra_info(self, name: str, default: object = None) -> object:
        return _Socket() if name == "socket" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def write(self, data: object) -> None:
        assert isinstance(data, bytes)
        self.written += data

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.closing = True

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = True

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class _Socket:
    family = socket.AF_INET


@dataclass
class _Service:
    """Answers everything that has come, when it is told to."""

    asked: Told = field(default_factory=list)
    waiting: list[ClientStream] = field(default_factory=list)
    limits = LIMITS
    form_limits = LIMITS
    streamed_paths: frozenset[bytes] = frozenset()
    is_draining = False

    def takes_websocket(self, path: bytes) -> bool:
        return False

    def opened(self, connection: ServerConnection | WebSocket) -> None: ...

    def closed(self, connection: ServerConnection | WebSocket) -> None: ...

    def run(self, stream: ClientStream) -> None:
        fields = b"\n".join(name + b":" + value for name, value in stream.headers)
        self.asked.append((stream.method.decode(), stream.path + b"?" + stream.query, stream.body, fields))
        self.waiting.append(stream)

    def answer(self) -> None:
        while self.waiting:
            self.waiting.pop(0).finish(clean=True, reset=False)

    def dispatch(self, stream: ClientStream) -> None: ...

    def abandoned(self, stream: ClientStream) -> None: ...


def converse(pieces: list[bytes]) -> tuple[Told, bytes]:
    """The requests that a connection saw in these bytes, and the status class of its refusal, if there was one.

    Which of two faults is named may depend on which came first.
    """
    service, transport = _Service(), _Transport()
    connection = ServerConnection(service)
    connection.connection_made(transport)
    for piece in pieces:
        if piece and not transport.closing:
            connection.data_received(piece)
            service.answer()
    said = transport.written.replace(b"HTTP/1.1 100 Continue\r\n\r\n", b"")
    connection.connection_lost(None)
    assert b"internal_error" not in said
    return service.asked, said[:10]
