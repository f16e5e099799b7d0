"""Comments keep a silent stream alive: before its first byte, between events, and never where they would disturb."""

import asyncio
from dataclasses import replace

import pytest

from core.http.asgi import Receive, Scope, Send
from core.http.limits import DEFAULT_LIMITS
from core.http.patience import COMMENT
from core.http.verdict import Ended
from tests.integration.http.harness import (
    LAST_CHUNK,
    SSE_HEAD,
    Conversation,
    Script,
    chunk,
    connected,
    post,
    relaying,
    replying,
    serving,
    upstream,
    whole,
)
from tests.patience import MOMENT_S

pytestmark = pytest.mark.usefixtures("both_ways")

_LIMITS = replace(DEFAULT_LIMITS, comment_s=0.05, sweep_s=0.01)
_EVENTS = [b"data: %d\n\n" % number for number in range(20)]
_CHUNKED = SSE_HEAD + b"".join(chunk(event) for event in _EVENTS) + LAST_CHUNK
_UNTIL_CLOSE = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + b"".join(_EVENTS)
_SIZED = whole(200, b"".join(_EVENTS), "content-type: text/event-stream")
_ASK = post("/v1/x", b"{}")


class Dialect:
    """Quotes what it is told."""

    def head_lines(self) -> bytes:
        return b"x-request-id: r1\r\n"

    def refusal_event(self, status: int, body: bytes) -> bytes:
        return b"data: error %d %b\n\n" % (status, body)


def _silent(go: asyncio.Event, *said: bytes, close: bool = False) -> Script:
    """Say each of these only after `go` was set for it; it is cleared again."""

    async def script(conversation: Conversation) -> None:
        await conversation.request()
        for part in said:
            await go.wait()
            go.clear()
            await conversation.say(part)
        if close:
            conversation.close()
        else:
            await conversation.wait_closed()

    return script


async def _read_comments(reader: asyncio.StreamReader, count: int) -> None:
    for _ in range(count):
        assert await reader.readexactly(len(chunk(COMMENT))) == chunk(COMMENT)


async def _read_early_head(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\ncontent-type: text/event-stream" in head
    assert b"\r\nx-request-id: r1\r\n" in head
    return head


@pytest.mark.parametrize("said", [_CHUNKED, _UNTIL_CLOSE, _SIZED], ids=["chunks", "until it closes", "a length"])
async def test_an_engine_that_thinks_first_is_heard_to_its_end_after_comments(said: bytes) -> None:
    go = asyncio.Event()
    async with (
        upstream(_silent(go, said, close=True)) as up,
        relaying(up.port, limits=_LIMITS, dialect=Dialect()) as relay,
        connected(relay.port) as client,
    ):
        await client.send(_ASK)
        await _read_early_head(client.reader)
        await _read_comments(client.reader, 3)
        go.set()
        body, complete = await client.chunks()
        assert body.replace(COMMENT, b"") == b"".join(_EVENTS)
        assert complete
        outcome = await relay.outcome()
        assert (outcome.ended, outcome.status) == (Ended.COMPLETE, 200)
        assert relay.errors == []


async def test_the_connection_serves_the_next_request_after_a_stream_that_began_early() -> None:
    go = asyncio.Event()
    async with (
        upstream(_silent(go, _CHUNKED)) as up,
        relaying(up.port, limits=_LIMITS, dialect=Dialect()) as relay,
        connected(relay.port) as client,
    ):
        for _ in range(2):
            await client.send(_ASK)
            await _read_early_head(client.reader)
            go.set()
            assert (await client.chunks())[1]
            for conversation in up.conversations:
                conversation.close()


async def test_a_pause_between_two_events_is_filled_and_nothing_else_is_changed() -> None:
    go = asyncio.Event()
    first, second = b"".join(chunk(e) for e in _EVENTS[:10]), b"".join(chunk(e) for e in _EVENTS[10:])
    async with (
        upstream(_silent(go, SSE_HEAD + first, second + LAST_CHUNK)) as up,
        relaying(up.port, limits=_LIMITS, dialect=Dialect()) as relay,
        connected(relay.port) as client,
    ):
        go.set()
        await client.send(_ASK)
        head = await client.reader.readuntil(b"\r\n\r\n")
        assert b"x-llmgw-target: t0" in head
        assert await client.reader.readexactly(len(first)) == first
        await _read_comments(client.reader, 3)
        go.set()
        body, complete = await client.chunks()
        assert (body.replace(COMMENT, b""), complete) == (b"".join(_EVENTS[10:]), True)


@pytest.mark.parametrize(
    "cut", [b"a\r\ndata: {", b"9\r\ndata: {}\n\r\n", b"a\r\ndata: {}\n\n\r\n1"], ids=["a chunk", "an event", "a size"]
)
async def test_a_pause_inside_something_is_left_alone(cut: bytes) -> None:
    go = asyncio.Event()
    async with (
        upstream(_silent(go, SSE_HEAD + cut, b"1\r\n\n\r\n")) as up,
        relaying(up.port, limits=_LIMITS, dialect=Dialect()) as relay,
        connected(relay.port) as client,
    ):
        go.set()
        await client.send(_ASK)
        await client.reader.readuntil(b"\r\n\r\n")
        assert await client.reader.readexactly(len(cut)) == cut
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5 * _LIMITS.comment_s):
                await client.reader.read(1)


REFUSED: list[tuple[str, bytes, bytes]] = [
    ("a refusal", whole(400, b'{"error":1}'), b'data: error 502 400 {"error":1}\n\n'),
    ("a failure", whole(500, b"oh"), b"data: error 502 500 oh\n\n"),
    ("no stream", whole(200, b"{}", "content-type: application/json"), b"data: error 502 malformed\n\n"),
    ("no HTTP", b"nonsense\r\n\r\n", b"data: error 502 malformed\n\n"),
    ("nothing", b"", b"data: error 502 closed_early\n\n"),
]


@pytest.mark.parametrize(("said", "event"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
async def test_what_cannot_be_told_by_a_head_any_more_is_an_event_and_an_unclean_end(said: bytes, event: bytes) -> None:
    go = asyncio.Event()
    async with (
        upstream(_silent(go, said, close=True)) as up,
        relaying(up.port, limits=_LIMITS, dialect=Dialect()) as relay,
        connected(relay.port) as client,
    ):
        await client.send(_ASK)
        await _read_early_head(client.reader)
        go.set()
        body, complete = await client.chunks()
        assert (body.replace(COMMENT, b""), complete) == (event, False)
        assert relay.errors == []


async def test_another_target_is_asked_after_comments_as_before_them() -> None:
    go = asyncio.Event()
    async with (
        upstream(_silent(go, b"", close=True)) as dying,
        upstream(replying(_CHUNKED)) as living,
        relaying(dying.port, living.port, limits=_LIMITS, dialect=Dialect()) as relay,
        connected(relay.port) as client,
    ):
        await client.send(_ASK)
        await _read_early_head(client.reader)
        go.set()
        body, complete = await client.chunks()
        assert (body.replace(COMMENT, b""), complete) == (b"".join(_EVENTS), True)


async def test_a_stream_that_breaks_after_comments_ends_with_the_plans_event() -> None:
    go = asyncio.Event()
    async with (
        upstream(_silent(go, SSE_HEAD + chunk(_EVENTS[0]), close=True)) as up,
        relaying(up.port, limits=_LIMITS, dialect=Dialect()) as relay,
        connected(relay.port) as client,
    ):
        await client.send(_ASK)
        await _read_early_head(client.reader)
        go.set()
        body, complete = await client.chunks()
        assert body.replace(COMMENT, b"") == _EVENTS[0] + b'data: {"error":{"message":"broken"}}\n\n'
        assert not complete


async def test_a_client_of_http_1_0_hears_comments_without_chunks() -> None:
    go = asyncio.Event()
    async with (
        upstream(_silent(go, _CHUNKED)) as up,
        relaying(up.port, limits=_LIMITS, dialect=Dialect()) as relay,
        connected(relay.port) as client,
    ):
        await client.send(b"POST /v1/x HTTP/1.0\r\ncontent-length: 2\r\n\r\n{}")
        head = await _read_early_head(client.reader)
        assert b"chunked" not in head
        assert await client.reader.readexactly(len(COMMENT)) == COMMENT
        go.set()
        assert (await client.reader.read()).replace(COMMENT, b"") == b"".join(_EVENTS)


async def test_who_did_not_ask_for_events_waits_in_silence() -> None:
    go = asyncio.Event()
    async with (
        upstream(_silent(go, whole(200, b"{}"))) as up,
        relaying(up.port, limits=_LIMITS) as relay,
        connected(relay.port) as client,
    ):
        await client.send(_ASK)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5 * _LIMITS.comment_s):
                await client.reader.read(1)
        go.set()
        assert (await client.answer()).body == b"{}"


async def test_a_client_that_leaves_between_comments_closes_its_engine() -> None:
    go = asyncio.Event()
    async with (
        upstream(_silent(go, b"")) as up,
        relaying(up.port, limits=_LIMITS, dialect=Dialect()) as relay,
    ):
        async with connected(relay.port) as client:
            await client.send(_ASK)
            await _read_early_head(client.reader)
            await _read_comments(client.reader, 2)
            go.set()
        async with asyncio.timeout(1 + MOMENT_S):
            await up.conversations[0].closed.wait()
        assert (await relay.outcome()).ended is Ended.CLIENT_GONE


class _Thinking:
    """An application that streams by itself: silent before its head, after it, and between two events."""

    def __init__(self, refuses: bool) -> None:
        self.go = asyncio.Event()
        self._refuses = refuses

    async def _silence(self) -> None:
        await self.go.wait()
        self.go.clear()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        extensions = scope["extensions"]
        assert isinstance(extensions, dict)
        extensions["llmgw.splice"].expect_events(Dialect())
        await self._silence()
        kind = b"application/json" if self._refuses else b"text/event-stream"
        await send(
            {
                "type": "http.response.start",
                "status": 503 if self._refuses else 200,
                "headers": [(b"content-type", kind)],
            }
        )
        if self._refuses:
            await send({"type": "http.response.body", "body": b"full"})
            return
        await self._silence()
        await send({"type": "http.response.body", "body": _EVENTS[0], "more_body": True})
        await self._silence()
        await send({"type": "http.response.body", "body": b"data: half", "more_body": True})
        await self._silence()
        await send({"type": "http.response.body", "body": b"\n\n"})


async def test_an_application_that_streams_itself_is_kept_alive_between_its_events() -> None:
    app = _Thinking(refuses=False)
    async with serving(app, _LIMITS) as served, connected(served.port) as client:
        await client.send(_ASK)
        await _read_early_head(client.reader)
        await _read_comments(client.reader, 2)
        app.go.set()
        await _read_comments(client.reader, 2)
        app.go.set()
        await client.reader.readuntil(chunk(_EVENTS[0]))
        await _read_comments(client.reader, 2)
        app.go.set()
        await client.reader.readuntil(chunk(b"data: half"))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5 * _LIMITS.comment_s):
                await client.reader.read(1)
        app.go.set()
        assert await client.chunks() == (b"\n\n", True)


async def test_an_applications_refusal_that_comes_late_is_an_event() -> None:
    app = _Thinking(refuses=True)
    async with serving(app, _LIMITS) as served, connected(served.port) as client:
        await client.send(_ASK)
        await _read_early_head(client.reader)
        app.go.set()
        body, complete = await client.chunks()
        assert (body.replace(COMMENT, b""), complete) == (b"data: error 503 full\n\n", False)
        assert await client.is_closed()
