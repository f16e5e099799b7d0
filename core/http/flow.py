"""The shortest way from one socket to the other, for the body of an answer once it has begun.

A stream of tokens is thousands of reads of a hundred bytes, and each costs what Python does with it. So while a body
is passed on as it comes, one function is all that runs: it belongs to the transport as its protocol, and what it needs
are the names of a closure. Everything else that can happen is still the connection's affair.
"""

import asyncio
from collections.abc import Callable
from typing import cast

from httptools import HttpParserError

from core.http.framing import ResponseFraming
from core.http.tail import MOST_BYTES, SHORT_BYTES, Tail


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
    tail: Tail,
    closed: Callable[[bytes, HttpParserError | None], None],
) -> None:
    """Write what the transport receives, as long as `framing` sees it within the body.

    Then the transport is the connection's again, and `closed` gets the read that was not written, with the parser's
    complaint if it has one.
    """
    feed, recent = framing.feed, tail.recent

    def data_received(data: bytes) -> None:
        nonlocal recent
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
        write(data)
        if len(data) > SHORT_BYTES:
            tail.keep_end_of(data)
            return
        recent += data
        if len(recent) > MOST_BYTES:
            tail.cut()

    transport.set_protocol(cast(asyncio.Protocol, Flow(connection, data_received)))
