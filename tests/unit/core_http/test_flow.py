"""A body flows as it came, however it is cut into reads, and no byte behind its end does."""

import asyncio
from typing import cast

import pytest
from httptools import HttpParserError
from hypothesis import given
from hypothesis import strategies as st

from core.http.excerpt import SHORT_BYTES, Excerpt
from core.http.flow import open_flow
from core.http.framing import ResponseFraming

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"


class Flowing:
    """A flow between a transport that only remembers its protocol and a list."""

    def __init__(self, head: bytes = HEAD) -> None:
        self.written: list[bytes] = []
        self.fed: list[bytes] = []
        self.closed: list[tuple[bytes, HttpParserError | None]] = []
        self.excerpt = Excerpt()
        self.connection = asyncio.Protocol()
        framing = ResponseFraming()
        framing.feed(head)
        self._parse, framing.feed = framing.feed, self._feed
        transport = cast(asyncio.Transport, self)
        open_flow(self.connection, transport, framing, self.written.append, self.excerpt, self._close)

    def _feed(self, data: bytes) -> None:
        self.fed.append(data)
        self._parse(data)

    def _close(self, data: bytes, error: HttpParserError | None) -> None:
        self.closed.append((data, error))

    def set_protocol(self, protocol: asyncio.Protocol) -> None:
        self.protocol = protocol

    def receive(self, *reads: bytes) -> None:
        for data in reads:
            if not self.closed:
                self.protocol.data_received(data)

    @property
    def is_open(self) -> bool:
        return self.protocol is not self.connection


def chunk(data: bytes, size: bytes = b"") -> bytes:
    return (size or b"%x" % len(data)) + b"\r\n" + data + b"\r\n"


_BODIES = st.lists(
    st.one_of(st.binary(min_size=1, max_size=300), st.integers(1, 5000).map(lambda n: b"x" * n)), max_size=12
)


@given(_BODIES, st.data())
def test_however_it_is_cut_all_but_the_last_read_is_written_and_noted(bodies: list[bytes], data: st.DataObject) -> None:
    wire = b"".join(map(chunk, bodies)) + LAST
    cuts = sorted(data.draw(st.sets(st.integers(1, len(wire) - 1), max_size=20)) | {0, len(wire)})
    reads = [wire[a:b] for a, b in zip(cuts, cuts[1:], strict=False)]
    flowing = Flowing()
    flowing.receive(*reads)
    assert flowing.closed == [(reads[-1], None)]
    assert flowing.written == reads[:-1]
    assert flowing.excerpt.size_bytes == len(wire) - len(reads[-1])
    assert not flowing.is_open


@given(_BODIES)
def test_chunk_by_chunk_it_is_the_same(bodies: list[bytes]) -> None:
    flowing = Flowing()
    flowing.receive(*map(chunk, bodies), LAST)
    assert flowing.written == [chunk(body) for body in bodies]
    assert flowing.closed == [(LAST, None)]


@pytest.mark.parametrize(
    "size", [*range(1, 20), 250, 255, 256, 257, SHORT_BYTES - 8, SHORT_BYTES - 7, SHORT_BYTES - 6, 5000]
)
def test_after_the_first_the_parser_is_not_asked_for_short_chunks(size: int) -> None:
    flowing = Flowing()
    read = chunk(b"x" * size)
    flowing.receive(read, read, read)
    assert flowing.written == [read] * 3
    assert len(flowing.fed) == (1 if len(read) <= SHORT_BYTES else 3)


@pytest.mark.parametrize(
    "read",
    [
        chunk(b"x" * 171, b"AB"),
        chunk(b"x" * 171, b"0ab"),
        chunk(b"x" * 171, b"ab;name=value"),
        chunk(b"one") + chunk(b"two"),
        b"3\r\nab",
    ],
    ids=["upper case", "leading zero", "extension", "two", "half"],
)
def test_what_is_not_exactly_one_chunk_is_the_parser_s(read: bytes) -> None:
    flowing = Flowing()
    flowing.receive(chunk(b"first"), read)
    assert flowing.fed == [chunk(b"first"), read]
    assert flowing.written == [chunk(b"first"), read]


@pytest.mark.parametrize("end", [b"xx", b"\r\r", b"\n\n", b"\n\r", b"x\n"])
def test_a_chunk_without_its_line_end_is_an_error_and_not_written(end: bytes) -> None:
    flowing = Flowing()
    flowing.receive(chunk(b"first"), b"3\r\nabc" + end)
    assert flowing.written == [chunk(b"first")]
    ((data, error),) = flowing.closed
    assert data == b"3\r\nabc" + end
    assert isinstance(error, HttpParserError)


def test_what_looks_like_a_chunk_inside_of_one_hides_nothing_from_the_parser() -> None:
    """An engine could write a model's words so; the end of its answer must still be seen."""
    inner = chunk(b"abc")
    flowing = Flowing()
    flowing.receive(chunk(b"first"), b"%x\r\n" % (2 * len(inner)), inner, inner, b"\r\n", LAST)
    assert flowing.closed == [(LAST, None)]
    assert flowing.fed == [chunk(b"first"), b"10\r\n", inner, inner, b"\r\n", LAST]


def test_the_end_of_a_message_and_what_stands_behind_it_is_not_written() -> None:
    flowing = Flowing()
    flowing.receive(chunk(b"first"), chunk(b"second") + LAST + HEAD)
    assert flowing.written == [chunk(b"first")]
    assert [data for data, _ in flowing.closed] == [chunk(b"second") + LAST + HEAD]


def test_a_body_with_a_length_is_the_parser_s() -> None:
    flowing = Flowing(b"HTTP/1.1 200 OK\r\ncontent-length: 16\r\n\r\n")
    flowing.receive(chunk(b"abc"), chunk(b"def"))
    assert flowing.written == [chunk(b"abc")]
    assert flowing.closed == [(chunk(b"def"), None)]
