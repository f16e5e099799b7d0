"""The shortest way from one socket to the other, for the body of an answer once it has begun.

A stream of tokens is thousands of reads of a hundred bytes, and each costs what Python does with it. So while a body
is passed on as it comes, one function is all that runs: it belongs to the transport as its protocol, and what it needs
are the names of a closure. Everything else that can happen is still the connection's affair.

Most reads are one chunk, as the engine wrote it. A read of a given length can be one chunk with one head only. So it is
known by comparing, and the parser, which would find nothing else in it, is not asked.
"""

import asyncio
from collections.abc import Callable
from typing import cast

from httptools import HttpParserError

from core.http.excerpt import MOST_READS, SHORT_BYTES, Excerpt
from core.http.framing import ResponseFraming

_CR, _LF = b"\r\n"


def _only_head(read_bytes: int) -> bytes:
    """How a read begins that is one chunk, with bytes in it and nothing but its size before them; empty: none is."""
    for digits in range(1, 4):
        size = read_bytes - digits - 4
        if size > 0 and len(head := b"%x" % size) == digits:
            return head + b"\r\n"
    return b""


_HEAD = tuple(map(_only_head, range(SHORT_BYTES + 1)))
_ABOVE = tuple(head[:-1] + bytes([_LF + 1]) if head else b"" for head in _HEAD)
"""What begins with a head is not less than it, and less than this; `startswith` takes three times as long."""


class Flow:
    """What the transport takes for its protocol: the one function, and for the rest the connection's own."""

    __slots__ = ("connection_lost", "data_received", "eof_received", "pause_writing", "resume_writing")

    def __init__(self, connection: asyncio.Protocol, data_received: Callable[[bytes], None]) -> None:
        self.data_received = data_received
        self.eof_received = connection.eof_received
        self.connection_lost = connection.connection_lost
        self.pause_writing = connection.pause_writing
        self.resume_writing = connection.resume_writing


def open_flow(
    connection: asyncio.Protocol,
    transport: asyncio.Transport,
    framing: ResponseFraming,
    write: Callable[[bytes], object],
    excerpt: Excerpt,
    closed: Callable[[bytes, HttpParserError | None], None],
) -> None:
    """Write what the transport receives, as long as `framing` sees it within the body.

    Then the transport is the connection's again, and `closed` gets the read that was not written, with the parser's
    complaint if it has one.
    """
    feed, reads = framing.feed, excerpt.reads
    note = reads.append
    between_chunks = framing.between_chunks

    def data_received(data: bytes) -> None:
        size = len(data)
        if (
            between_chunks
            and size <= SHORT_BYTES
            and _HEAD[size] <= data < _ABOVE[size]
            and data[-1] == _LF
            and data[-2] == _CR
        ):
            write(data)
            note(data)
            if len(reads) > MOST_READS:
                excerpt.shorten()
        else:
            parse(data)

    def parse(data: bytes) -> None:
        nonlocal between_chunks
        # The framing comes first: what stands behind the end of the message must never reach the client as its next
        # response.
        try:
            feed(data)
        except HttpParserError as error:
            transport.set_protocol(connection)
            closed(data, error)
            return
        if framing.complete:
            transport.set_protocol(connection)
            closed(data, None)
            return
        between_chunks = framing.between_chunks
        write(data)
        excerpt.keep(data)

    transport.set_protocol(cast(asyncio.Protocol, Flow(connection, data_received)))
