"""Websocket frames from nowhere: never an exception, bounded, and the same meaning however they are cut."""

import asyncio
from dataclasses import dataclass, field, replace
from typing import cast

from core.http.limits import DEFAULT_LIMITS
from core.http.websocket import WebSocket
from tests.fuzz.mutation import Mutator, fuzz

_HANDSHAKE = [
    (b"host", b"x"), (b"connection", b"Upgrade"), (b"upgrade", b"websocket"), (b"sec-websocket-version", b"13"),
    (b"sec-websocket-key", b"dGhlIHNhbXBsZSBub25jZQ=="),
]  # fmt: skip
_LARGEST = 1000


def frame(first: int, payload: bytes) -> bytes:
    """As a client sends it, with a mask of zeros."""
    size = len(payload)
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
    return bytes([first]) + length + bytes(4) + payload


_SAMPLES = [
    frame(0x81, b"hello") + frame(0x82, bytes(range(200))) + frame(0x89, b"ping") + frame(0x88, b"\x03\xe8bye"),
    frame(0x01, b"a\xc3") + frame(0x89, b"") + frame(0x00, b"\xa4") + frame(0x80, b"b") + frame(0x81, b""),
    frame(0x82, b"x" * 900) + frame(0x02, b"y" * 600) + frame(0x80, b"y" * 600) + frame(0x81, b"after"),
    frame(0x8A, b"") + frame(0x81, b"x" * 500) * 5,
    frame(0x81, b"m") * 40,
]
_WORDS = [
    b"\x81\xff\x7f\xff\xff\xff\xff\xff\xff\xff", b"\x81\x80", b"\x88\x80" + bytes(4), b"\x89\xfd" + bytes(4), b"\xff",
    b"\x00\x80" + bytes(4), frame(0x88, b"\x03\xed"), frame(0x81, b"\xff"), frame(0xC1, b"z"), b"\x81\x01a",
]  # fmt: skip


@dataclass
class _Transport:
    """What is written, and whether it is closed."""

    written: bytes = b""
    closing: bool = False

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.closing = True

    abort = close

    def is_closing(self) -> bool:
        return self.closing

    def set_protocol(self, protocol: object) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


@dataclass
class _Owner:
    limits = replace(DEFAULT_LIMITS, message_bytes=_LARGEST)
    is_draining = False
    gone: list[WebSocket] = field(default_factory=list)

    def opened(self, connection: WebSocket) -> None: ...

    def closed(self, connection: WebSocket) -> None:
        self.gone.append(connection)


def converse(pieces: list[bytes]) -> tuple[list[str | bytes], bytes]:
    """The messages that an application would read, and what the client was sent."""
    owner, transport = _Owner(), _Transport()
    socket = WebSocket(owner, _HANDSHAKE, b"/ws")
    socket.start(cast(asyncio.Transport, transport), b"", is_paused=False)
    for piece in pieces:
        if piece and not transport.closing:
            socket.data_received(piece)
            assert len(socket._part) <= _LARGEST + len(piece)
    socket.connection_lost(None)
    assert owner.gone == [socket] and socket.is_closed
    assert all(len(message) <= _LARGEST for message in socket._inbox)
    return list(socket._inbox), transport.written


def test_frames_mean_the_same_however_they_are_cut() -> None:
    def check(data: bytes, mutator: Mutator) -> None:
        assert converse(mutator.cuts(data)) == converse([data])

    fuzz("websockets", _SAMPLES, _WORDS, check)
