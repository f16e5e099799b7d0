"""What a client sees of an upstream through the relay, when all goes well."""

import asyncio
import hashlib

import pytest

from core.http.plan import RelayOutcome
from core.http.verdict import Ended
from tests.integration.http.harness import (
    LAST_CHUNK,
    SSE_HEAD,
    Conversation,
    Upstream,
    chunk,
    connected,
    post,
    relaying,
    replying,
    upstream,
    whole,
)

pytestmark = pytest.mark.usefixtures("both_ways")


def _event(number: int) -> bytes:
    return f'data: {{"n":{number}}}\n\n'.encode()


def _stream(count: int) -> bytes:
    return SSE_HEAD + b"".join(chunk(_event(number)) for number in range(count)) + LAST_CHUNK


RESPONSES: list[tuple[str, bytes, int, bytes, bool]] = [
    ("a length", whole(200, b"hello"), 200, b"hello", True),
    ("no body by length", whole(200, b""), 200, b"", True),
    ("chunks", _stream(3), 200, b"".join(map(_event, range(3))), True),
    ("chunk extensions", SSE_HEAD + b"3;a=b\r\nabc\r\n" + LAST_CHUNK, 200, b"abc", True),
    ("no chunk but the last", SSE_HEAD + LAST_CHUNK, 200, b"", True),
    ("204", b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", True),
    ("304", b"HTTP/1.1 304 Not Modified\r\n\r\n", 304, b"", True),
    ("a client's error", whole(422, b"no"), 422, b"no", True),
    (
        "an early hint before it",
        b"HTTP/1.1 103 Early Hints\r\nx: y\r\n\r\n" + whole(200, b"hello"),
        200,
        b"hello",
        True,
    ),
    ("100 before it", b"HTTP/1.1 100 Continue\r\n\r\n" + whole(200, b"hello"), 200, b"hello", True),
    ("an unknown status", whole(299, b"hello"), 299, b"hello", True),
    ("a redirect", whole(307, b"", "location: http://elsewhere/"), 307, b"", True),
    ("a closing upstream", whole(200, b"hello", "connection: close"), 200, b"hello", False),
    ("HTTP/1.0", b"HTTP/1.0 200 OK\r\ncontent-length: 5\r\n\r\nhello", 200, b"hello", False),
    ("no reason", b"HTTP/1.1 200\r\ncontent-length: 5\r\n\r\nhello", 200, b"hello", True),
]


@pytest.mark.parametrize(
    ("response", "status", "body", "kept"), [row[1:] for row in RESPONSES], ids=[row[0] for row in RESPONSES]
)
async def test_a_response_arrives_as_it_was_sent_and_the_upstream_is_used_again(
    response: bytes, status: int, body: bytes, kept: bool
) -> None:
    async def script(conversation: Conversation) -> None:
        while True:
            await conversation.request()
            await conversation.say(response)
            if not kept:
                conversation.close()
                return

    async with upstream(script) as up, relaying(up.port) as relay, connected(relay.port) as client:
        for _ in range(3):
            await client.send(post("/v1/x", b"{}"))
            answer = await client.answer()
            assert (answer.status, answer.body, answer.complete) == (status, body, True)
            assert answer.headers["x-llmgw-target"] == "t0"
            assert (await relay.outcome()).ended is Ended.COMPLETE
        assert len(up.conversations) == (1 if kept else 3)
        assert relay.errors == []


@pytest.mark.parametrize(
    "response", [row[1] for row in RESPONSES if row[4]], ids=[row[0] for row in RESPONSES if row[4]]
)
async def test_a_response_that_comes_byte_by_byte_is_the_same_response(response: bytes) -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.say(response)
        await conversation.request()
        for at in range(len(response)):
            await conversation.say(response[at : at + 1])
            await asyncio.sleep(0)
        await conversation.request()

    async with upstream(script) as up, relaying(up.port) as relay, connected(relay.port) as client:
        answers = []
        for _ in range(2):
            await client.send(post("/v1/x", b"{}"))
            answers.append(await client.answer())
            assert answers[-1].headers.pop("date").endswith(" GMT")
        assert answers[0] == answers[1]


async def test_a_body_without_length_or_chunks_ends_with_the_connection() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.say(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\nhello")
        conversation.close()

    async with upstream(script) as up, relaying(up.port) as relay, connected(relay.port) as client:
        await client.send(post("/v1/x", b"{}"))
        answer = await client.answer()
        assert (answer.body, answer.headers["connection"]) == (b"hello", "close")
        assert (await relay.outcome()).ended is Ended.COMPLETE


async def test_an_http_1_0_client_gets_chunks_without_their_framing() -> None:
    async with upstream(replying(_stream(5))) as up, relaying(up.port) as relay, connected(relay.port) as client:
        await client.send(b"POST /v1/x HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}")
        answer = await client.answer()
        assert answer.body == b"".join(map(_event, range(5)))
        assert "transfer-encoding" not in answer.headers


async def test_head_is_relayed_without_waiting_for_a_body() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n"
    async with upstream(replying(head)) as up, relaying(up.port) as relay, connected(relay.port) as client:
        for _ in range(2):
            await client.send(b"HEAD /v1/x HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await client.answer(head=True)).headers["content-length"] == "500"
        assert len(up.conversations) == 1


async def test_pipelined_requests_are_relayed_one_after_the_other() -> None:
    async def script(conversation: Conversation) -> None:
        while True:
            _, body = await conversation.request()
            await conversation.say(SSE_HEAD + chunk(body) + LAST_CHUNK)

    async with upstream(script) as up, relaying(up.port) as relay, connected(relay.port) as client:
        await client.send(b"".join(post("/v1/x", b"%d" % number) for number in range(50)))
        for number in range(50):
            assert (await client.answer()).body == b"%d" % number
        assert len(up.conversations) == 1


async def test_each_side_hears_only_what_concerns_it() -> None:
    heads: list[bytes] = []
    secrets = "set-cookie: a=b", "server: engine/1.2", "www-authenticate: Bearer", "keep-alive: 5", "x-hop: 1"

    async def script(conversation: Conversation) -> None:
        head, _ = await conversation.request()
        heads.append(head)
        await conversation.say(whole(200, b"x", *secrets, "connection: keep-alive, x-hop", "x-kept: 1"))

    fields = (
        "Authorization: Bearer client", "Cookie: c=d", "X-Api-Key: k", "X-Forwarded-For: 1.2.3.4", "TE: trailers",
        "Connection: keep-alive, X-Private", "X-Private: 1", "X-Kept: 1", "Accept-Encoding: gzip", "Origin: http://a",
    )  # fmt: skip
    async with upstream(script) as up, relaying(up.port) as relay, connected(relay.port) as client:
        await client.send(post("/v1/x?y=z", b"{}", *fields))
        answer = await client.answer()
    assert heads == [
        b"POST /v1/x?y=z HTTP/1.1\r\nhost: 127.0.0.1:%d\r\nauthorization: Bearer engine-key\r\nx-kept: 1\r\n"
        b"content-length: 2\r\n\r\n" % up.port
    ]
    assert answer.headers.pop("date").endswith(" GMT")
    assert answer.headers == {"content-length": "1", "x-kept": "1", "x-llmgw-target": "t0"}


async def test_the_outcome_tells_what_accounting_needs() -> None:
    usage = b'data: {"usage":{"total_tokens":7}}\n\n'
    body = b"".join(chunk(_event(n)) for n in range(500)) + chunk(usage) + chunk(b"data: [DONE]\n\n") + LAST_CHUNK
    async with upstream(replying(SSE_HEAD + body)) as up, relaying(up.port) as relay, connected(relay.port) as client:
        await client.send(post("/v1/x", b"{}"))
        await client.answer()
        outcome = await relay.outcome()
    assert (outcome.status, outcome.size_bytes) == (200, len(body))
    assert usage in outcome.tail
    assert 1024 <= len(outcome.tail) <= 20_000
    assert outcome.first_byte_s is not None
    assert 0 < outcome.first_byte_s <= outcome.total_s


async def test_the_tail_holds_the_usage_however_the_stream_was_cut_into_reads() -> None:
    usage = b'data: {"usage":{"total_tokens":7}}\n\n'

    async def script(conversation: Conversation) -> None:
        await conversation.request()
        for data in (SSE_HEAD, chunk(b"x" * 100_000), chunk(usage), chunk(b"data: [DONE]\n\n"), b"0\r\n", b"\r\n"):
            await conversation.say(data)
            await asyncio.sleep(0)
        await conversation.request()

    async with upstream(script) as up, relaying(up.port) as relay, connected(relay.port) as client:
        await client.send(post("/v1/x", b"{}"))
        await client.answer()
        assert usage in (await relay.outcome()).tail


async def test_200_streams_at_once_arrive_byte_for_byte() -> None:
    async def script(conversation: Conversation) -> None:
        while True:
            _, body = await conversation.request()
            await conversation.say(SSE_HEAD)
            for number in range(50):
                await conversation.say(chunk(body + b"-%d" % number))
                await asyncio.sleep(0)
            await conversation.say(LAST_CHUNK)

    async def ask(port: int, number: int) -> bytes:
        async with connected(port) as client:
            await client.send(post("/v1/x", b"%d" % number))
            answer = await client.answer()
            assert answer.complete
            return answer.body

    async with upstream(script) as up, relaying(up.port) as relay:
        bodies = await asyncio.gather(*(ask(relay.port, number) for number in range(200)))
    for number, body in enumerate(bodies):
        assert body == b"".join(b"%d-%d" % (number, piece) for piece in range(50))


async def test_a_body_of_20_mb_reaches_the_upstream_and_one_comes_back() -> None:
    sent = bytes(range(256)) * 80_000
    digests: list[str] = []

    async def script(conversation: Conversation) -> None:
        while True:
            _, body = await conversation.request()
            digests.append(hashlib.sha256(body).hexdigest())
            await conversation.say(whole(200, body))

    async with upstream(script) as up, relaying(up.port) as relay, connected(relay.port) as client:
        for _ in range(2):
            await client.send(post("/v1/x", sent))
            assert (await client.answer()).body == sent
    assert digests == [hashlib.sha256(sent).hexdigest()] * 2


async def test_an_upstream_that_another_client_left_slow_serves_the_next_one() -> None:
    """The last bytes may come while the client is not reading: the connection must not stay paused."""
    big = whole(200, b"x" * 3_000_000)
    async with upstream(replying(big, whole(200, b"next"))) as up, relaying(up.port) as relay:
        async with connected(relay.port, receive_buffer=4096) as slow:
            await slow.send(post("/v1/x", b"{}"))
            await asyncio.sleep(0.05)
            assert len((await slow.answer()).body) == 3_000_000
        async with connected(relay.port) as client:
            await client.send(post("/v1/x", b"{}"))
            assert (await client.answer()).body == b"next"
        assert len(up.conversations) == 1


async def test_a_slow_reader_holds_the_upstream_back() -> None:
    said = 0

    async def script(conversation: Conversation) -> None:
        nonlocal said
        await conversation.request()
        await conversation.say(SSE_HEAD)
        for _ in range(4000):
            await conversation.say(chunk(b"x" * 10_000))
            said += 10_000
        await conversation.say(LAST_CHUNK)
        await conversation.request()

    async with upstream(script) as up, relaying(up.port) as relay, connected(relay.port, receive_buffer=4096) as client:
        await client.send(post("/v1/x", b"{}"))
        before = -1
        while said != before:  # until nothing moves any more
            before = said
            await asyncio.sleep(0.2)
        assert said < 12_000_000
        answer = await client.answer()
        assert (len(answer.body), answer.complete) == (40_000_000, True)


def _kinds(outcome: RelayOutcome) -> list[Ended]:
    return [attempt.ended for attempt in outcome.attempts]


async def _ask_once(up: Upstream) -> RelayOutcome:
    async with relaying(up.port) as relay, connected(relay.port) as client:
        await client.send(post("/v1/x", b"{}"))
        await client.answer()
        return await relay.outcome()


async def test_one_relay_is_one_attempt_and_one_outcome() -> None:
    async with upstream(replying(whole(200, b"x"))) as up:
        outcome = await _ask_once(up)
    assert _kinds(outcome) == [Ended.COMPLETE]
