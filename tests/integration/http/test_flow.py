"""A long stream, whose reads go the shortest way once it has begun: what becomes of it when it does not end well."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from core.http.verdict import Ended
from tests.integration.http.harness import (
    LAST_CHUNK,
    SSE_HEAD,
    Conversation,
    RawClient,
    Relaying,
    Upstream,
    chunk,
    connected,
    post,
    relaying,
    upstream,
    whole,
)

pytestmark = pytest.mark.usefixtures("both_ways")

_SMUGGLED = whole(200, b"somebody else's")
_BEGUN = [chunk(b"b" * 700), chunk(b"c" * 700), chunk(b"d" * 100)]
"""After the second of these nothing of a body is looked at any more."""


@dataclass
class Stream:
    """One that has flowed for a while; what the upstream says now reaches the relay as one read."""

    conversation: Conversation
    client: RawClient
    relay: Relaying
    up: Upstream
    asked_again: asyncio.Event
    said: bytes = b""

    async def pass_on(self, data: bytes) -> None:
        """Say something that the client gets."""
        await self.conversation.say(data)
        self.said += data
        assert await self.client.reader.readexactly(len(data)) == data


@contextlib.asynccontextmanager
async def flowing() -> AsyncIterator[Stream]:
    come: asyncio.Queue[Conversation] = asyncio.Queue()
    asked_again = asyncio.Event()

    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.say(SSE_HEAD)
        come.put_nowait(conversation)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await conversation.request()
            asked_again.set()
        await conversation.wait_closed()

    async with upstream(script) as up, relaying(up.port) as relay, connected(relay.port) as client:
        await client.send(post("/v1/x", b"{}"))
        stream = Stream(await come.get(), client, relay, up, asked_again)
        await client.reader.readuntil(b"\r\n\r\n")
        for data in _BEGUN:
            await stream.pass_on(data)
        yield stream
        assert relay.errors == []


async def test_short_and_long_reads_take_turns_and_are_counted_to_the_byte() -> None:
    async with flowing() as stream:
        for size in (1, 100_000, 1, 20, 1024, 1025, *[90] * 120, 9000, 3):
            await stream.pass_on(chunk(b"x" * size))
        await stream.pass_on(chunk(b"the end") + LAST_CHUNK)
        outcome = await stream.relay.outcome()
        assert (outcome.ended, outcome.size_bytes) == (Ended.COMPLETE, len(stream.said))
        assert len(outcome.tail) >= 1024 and stream.said.endswith(outcome.tail)


async def test_the_connection_serves_again_after_it() -> None:
    async with flowing() as stream:
        await stream.pass_on(LAST_CHUNK)
        assert (await stream.relay.outcome()).ended is Ended.COMPLETE
        await stream.client.send(post("/v1/x", b"{}"))
        await stream.asked_again.wait()
        await stream.conversation.say(whole(200, b"again"))
        assert (await stream.client.answer()).body == b"again"
        assert len(stream.up.conversations) == 1


@pytest.mark.parametrize(
    "said",
    [
        LAST_CHUNK + _SMUGGLED, LAST_CHUNK + b"x", chunk(b"x") + LAST_CHUNK + _SMUGGLED, b"zz\r\nx\r\n", b"-1\r\n",
        b"1\r\nxyz\r\n", b"ffffffffffffffffff\r\n", b"\0",
    ],
)  # fmt: skip
async def test_what_is_no_part_of_the_message_reaches_nobody(said: bytes) -> None:
    async with flowing() as stream:
        await stream.conversation.say(said)
        rest, is_whole = await stream.client.chunks()
        assert not is_whole and b"somebody" not in rest and b"xyz" not in rest
        assert (await stream.relay.outcome()).ended is Ended.UPSTREAM_BROKEN
        async with asyncio.timeout(30):
            await stream.conversation.closed.wait()


@pytest.mark.parametrize("resets", [False, True])
async def test_an_upstream_that_dies_is_seen_as_a_stream_that_breaks(resets: bool) -> None:
    async with flowing() as stream:
        if resets:
            stream.conversation.reset()
        else:
            stream.conversation.close()
        assert (await stream.client.chunks())[1] is False
        outcome = await stream.relay.outcome()
        assert (outcome.ended, outcome.size_bytes) == (Ended.UPSTREAM_BROKEN, len(stream.said))


async def test_a_client_that_leaves_is_noticed_while_nothing_comes() -> None:
    async with flowing() as stream:
        stream.client.reset()
        assert (await stream.relay.outcome()).ended is Ended.CLIENT_GONE
        async with asyncio.timeout(30):
            await stream.conversation.closed.wait()


async def test_a_client_that_does_not_read_holds_the_upstream_back() -> None:
    async with flowing() as stream:
        block, said = chunk(b"x" * 1000), 0
        with contextlib.suppress(TimeoutError):
            while said < 512 << 20:
                async with asyncio.timeout(1.0):
                    for _ in range(100):
                        await stream.conversation.say(block)
                said += 100 * len(block)
        assert said < 512 << 20  # the sockets' buffers, and not our memory
        read = 0
        while read < said:
            read += len(await stream.client.reader.read(1 << 20))
