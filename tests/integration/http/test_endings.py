"""How a relay ends early: the client leaves (the engine is told at once) or the upstream does (the client sees it)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from core.http.limits import DEFAULT_LIMITS, DEFAULT_POOL_LIMITS
from core.http.verdict import Ended
from tests.integration.http.harness import (
    LAST_CHUNK,
    SSE_HEAD,
    Conversation,
    ListedPlan,
    RawClient,
    Relaying,
    Upstream,
    chunk,
    connected,
    post,
    relaying,
    turns,
    upstream,
    whole,
)
from tests.patience import MOMENT_S

pytestmark = pytest.mark.usefixtures("both_ways")

_EVENT = chunk(b"data: {}\n\n")
_CLOSED_WITHIN_S = 1.0 + MOMENT_S

STREAMED = SSE_HEAD + _EVENT
BUFFERED = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n0123456789"
ENDLESS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {}\n\n"


async def _close(client: RawClient) -> None:
    client.writer.close()


async def _reset(client: RawClient) -> None:
    client.reset()


async def _half_close(client: RawClient) -> None:
    client.writer.write_eof()


LEAVING: dict[str, Callable[[RawClient], Awaitable[None]]] = {
    "closes": _close,
    "resets": _reset,
    "half-closes": _half_close,
}


@asynccontextmanager
async def _asking(said: bytes) -> AsyncIterator[tuple[Upstream, Relaying, RawClient]]:
    """A client whose request is with an upstream that says `said` and then waits."""
    reached = asyncio.Event()

    async def script(conversation: Conversation) -> None:
        await conversation.request()
        if said:
            await conversation.say(said)
        reached.set()
        await conversation.wait_closed()

    async with upstream(script) as up, relaying(up.port) as relay, connected(relay.port) as client:
        await client.send(post("/v1/x", b"{}"))
        await reached.wait()
        if said:
            await client.reader.readuntil(b"\r\n\r\n")
        yield up, relay, client


@pytest.mark.parametrize("leave", LEAVING.values(), ids=LEAVING.keys())
@pytest.mark.parametrize(
    "said", [b"", STREAMED, BUFFERED, ENDLESS], ids=["before the first byte", "stream", "buffered", "without length"]
)
async def test_the_upstream_is_closed_within_a_second_when_the_client(
    leave: Callable[[RawClient], Awaitable[None]], said: bytes
) -> None:
    async with _asking(said) as (up, relay, client):
        await leave(client)
        async with asyncio.timeout(_CLOSED_WITHIN_S):
            await up.conversations[0].closed.wait()
            outcome = await relay.outcome()
        assert outcome.ended is Ended.CLIENT_GONE
        assert [attempt.ended for attempt in outcome.attempts] == [Ended.CLIENT_GONE]
        assert outcome.status == (200 if said else None)
        assert relay.errors == []


async def test_the_upstream_is_closed_when_a_pipelining_client_leaves() -> None:
    async with _asking(STREAMED) as (up, relay, client):
        await client.send(post("/v1/x", b"{}") * 20)
        client.reset()
        async with asyncio.timeout(_CLOSED_WITHIN_S):
            await up.conversations[0].closed.wait()
        assert len(relay.plans) == 1


async def test_the_upstream_is_closed_when_a_client_that_had_sent_too_much_leaves() -> None:
    """Its connection is not being read any more, so its leaving is no event."""
    async with _asking(b"") as (up, relay, client):
        sending = asyncio.ensure_future(client.send(post("/v1/x", b"x" * 50_000) * 400))
        await asyncio.sleep(0.1)
        client.reset()
        async with asyncio.timeout(2 * DEFAULT_LIMITS.sweep_s + MOMENT_S):
            await up.conversations[0].closed.wait()
            assert (await relay.outcome()).ended is Ended.CLIENT_GONE
        await asyncio.gather(sending, return_exceptions=True)


async def test_the_upstream_is_closed_when_a_client_that_does_not_read_leaves() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.say(SSE_HEAD)
        while True:
            await conversation.say(chunk(b"x" * 10_000))

    async with upstream(script) as up, relaying(up.port) as relay:
        async with connected(relay.port, receive_buffer=4096) as client:
            await client.send(post("/v1/x", b"{}"))
            await asyncio.sleep(0.3)
            client.reset()
        async with asyncio.timeout(_CLOSED_WITHIN_S):
            await up.conversations[0].closed.wait()
            assert (await relay.outcome()).ended is Ended.CLIENT_GONE


async def test_a_client_that_does_not_read_for_too_long_has_left() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.say(SSE_HEAD)
        while True:
            await conversation.say(chunk(b"x" * 10_000))

    limits = replace(DEFAULT_LIMITS, stall_timeout_s=0.5, sweep_s=0.05)
    async with (
        upstream(script) as up, relaying(up.port, limits=limits) as relay,
        connected(relay.port, receive_buffer=4096) as client,
    ):  # fmt: skip
        await client.send(post("/v1/x", b"{}"))
        await client.reader.readuntil(b"\r\n\r\n")
        await up.conversations[0].closed.wait()
        assert (await relay.outcome()).ended is Ended.CLIENT_GONE


async def test_a_hundred_clients_that_leave_leave_nothing_behind() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.say(STREAMED)
        await conversation.wait_closed()

    async def come_and_go(port: int) -> None:
        async with connected(port) as client:
            await client.send(post("/v1/x", b"{}"))
            await client.reader.readuntil(_EVENT)
            client.reset()

    async with upstream(script) as up, relaying(up.port) as relay:
        await asyncio.gather(*(come_and_go(relay.port) for _ in range(100)))
        async with asyncio.timeout(_CLOSED_WITHIN_S):
            for plan in relay.plans:
                await plan.over.wait()
        assert {outcome.ended for plan in relay.plans for outcome in plan.outcomes} == {Ended.CLIENT_GONE}
        assert [len(plan.attempts) for plan in relay.plans] == [1] * 100
        assert relay.service.connection_count == 0


Leave = Callable[[Conversation], None]

BROKEN: list[tuple[str, bytes, Leave, bool]] = [
    ("a stream between events", SSE_HEAD + _EVENT, Conversation.close, True),
    ("a stream between events, by reset", SSE_HEAD + _EVENT, Conversation.reset, True),
    ("a stream before its first event", SSE_HEAD, Conversation.close, True),
    ("a stream inside an event", SSE_HEAD + _EVENT + b"14\r\ndata: {", Conversation.close, False),
    ("a stream between chunks and inside an event", SSE_HEAD + chunk(b"data: {"), Conversation.close, False),
    ("a stream inside its last chunk", SSE_HEAD + _EVENT + b"0\r\n", Conversation.close, False),
    ("a stream with a bad chunk", SSE_HEAD + _EVENT + b"zz\r\nabc\r\n", Conversation.close, True),
    ("chunks that are no events", SSE_HEAD.replace(b"event-stream", b"plain") + _EVENT, Conversation.close, False),
    ("a length", BUFFERED, Conversation.close, False),
    ("a length, by reset", BUFFERED, Conversation.reset, False),
]  # fmt: skip


@pytest.mark.parametrize(("said", "leave", "has_event"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
async def test_an_answer_that_breaks_off_never_looks_whole(said: bytes, leave: Leave, has_event: bool) -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.say(said)
        await turns()  # so that a reset does not overtake what was said
        leave(conversation)

    async with upstream(script) as up, relaying(up.port) as relay, connected(relay.port) as client:
        await client.send(post("/v1/x", b"{}"))
        answer = await client.answer()
        assert not answer.complete
        assert answer.body.endswith(ListedPlan.error_event) is has_event
        assert b"[DONE]" not in answer.body
        assert await client.is_closed()
        assert (await relay.outcome()).ended is Ended.UPSTREAM_BROKEN


async def test_a_body_without_length_that_breaks_off_is_reset() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.say(ENDLESS)
        await turns()
        conversation.reset()

    async with upstream(script) as up, relaying(up.port) as relay, connected(relay.port) as client:
        await client.send(post("/v1/x", b"{}"))
        with pytest.raises(ConnectionResetError):
            await client.answer()
        assert (await relay.outcome()).ended is Ended.UPSTREAM_BROKEN


async def test_an_http_1_0_client_sees_a_broken_stream_as_a_reset() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.say(STREAMED)
        await turns()
        conversation.close()

    async with upstream(script) as up, relaying(up.port) as relay, connected(relay.port) as client:
        await client.send(b"POST /v1/x HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}")
        with pytest.raises(ConnectionResetError):
            await client.answer()


@pytest.mark.parametrize("pause_s", [0.15, 1000.0], ids=["slow", "stuck"])
async def test_a_stream_may_be_slow_and_not_stuck(pause_s: float) -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.say(STREAMED)
        for _ in range(8):
            await asyncio.sleep(pause_s)
            await conversation.say(_EVENT)
        await conversation.say(LAST_CHUNK)

    limits = replace(DEFAULT_POOL_LIMITS, sweep_s=0.02)
    async with (
        upstream(script) as up, relaying(up.port, pool_limits=limits, timeouts_s=(None, 1.0)) as relay,
        connected(relay.port) as client,
    ):  # fmt: skip
        await client.send(post("/v1/x", b"{}"))
        answer = await client.answer()
        expected = Ended.COMPLETE if pause_s < 1 else Ended.BETWEEN_BYTES_TIMEOUT
        assert ((await relay.outcome()).ended, answer.complete) == (expected, pause_s < 1)


SMUGGLED: list[tuple[str, bytes]] = [
    ("after a length", whole(200, b"mine") + whole(200, b"smuggled")),
    ("after the last chunk", SSE_HEAD + _EVENT + LAST_CHUNK + whole(200, b"smuggled")),
    ("garbage after a length", whole(200, b"mine") + b"x"),
    ("a body after 204", b"HTTP/1.1 204 No Content\r\n\r\nsmuggled"),
]


@pytest.mark.parametrize("said", [row[1] for row in SMUGGLED], ids=[row[0] for row in SMUGGLED])
async def test_bytes_behind_a_message_never_reach_a_client(said: bytes) -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.say(said)
        await conversation.wait_closed()

    async with upstream(script) as up, relaying(up.port) as relay, connected(relay.port) as client:
        await client.send(post("/v1/x", b"{}"))
        seen = await client.reader.read()
        assert b"smuggled" not in seen
        await up.conversations[0].closed.wait()


async def test_a_drain_lets_streams_end_and_then_closes() -> None:
    release = asyncio.Event()

    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.say(STREAMED)
        await release.wait()
        await conversation.say(_EVENT + LAST_CHUNK)

    async with (
        upstream(script) as up, relaying(up.port) as relay, connected(relay.port) as client,
        connected(relay.port) as idle,
    ):  # fmt: skip
        await client.send(post("/v1/x", b"{}"))
        await client.reader.readuntil(b"\r\n\r\n")
        draining = asyncio.ensure_future(relay.service.drain(10))
        assert await idle.is_closed()
        assert not draining.done()
        release.set()
        assert (await client.reader.read()).endswith(LAST_CHUNK)
        assert await draining


async def test_a_drain_cuts_off_what_does_not_end_in_time() -> None:
    async with _asking(STREAMED) as (up, relay, client):
        assert not await relay.service.drain(0.05)
        await up.conversations[0].closed.wait()
        assert not (await client.reader.read()).endswith(LAST_CHUNK)
