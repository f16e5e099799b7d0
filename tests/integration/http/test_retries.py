"""Until a response head is passed on, a failing target is followed by the next; the client hears of none of it."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from core.http.limits import DEFAULT_POOL_LIMITS
from core.http.verdict import Ended
from tests.integration.http.harness import (
    SSE_HEAD,
    Conversation,
    Script,
    connected,
    post,
    relaying,
    replying,
    upstream,
    whole,
)

pytestmark = pytest.mark.usefixtures("both_ways")


@contextmanager
def _refusing_port() -> Iterator[int]:
    """A port that is bound and does not listen: connections to it are refused."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()[1]


async def _close_at_once(conversation: Conversation) -> None:
    await conversation.request()
    conversation.close()


async def _reset(conversation: Conversation) -> None:
    await conversation.request()
    conversation.reset()


async def _half_a_head(conversation: Conversation) -> None:
    await conversation.request()
    await conversation.say(b"HTTP/1.1 200 OK\r\ncontent-ty")
    conversation.close()


FAILING: list[tuple[str, Script, Ended]] = [
    ("500", replying(whole(500, b"boom")), Ended.SERVER_ERROR),
    ("502", replying(whole(502, b"boom")), Ended.SERVER_ERROR),
    ("504", replying(whole(504, b"boom")), Ended.SERVER_ERROR),
    ("503", replying(whole(503, b"full", "retry-after: 1")), Ended.BUSY),
    ("429", replying(whole(429, b"full")), Ended.BUSY),
    ("429 in chunks", replying(b"HTTP/1.1 429 x\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n"), Ended.BUSY),
    ("401", replying(whole(401, b"your key sk-engine is wrong")), Ended.UNAUTHORIZED),
    ("closes before it answers", _close_at_once, Ended.CLOSED_EARLY),
    ("resets before it answers", _reset, Ended.CLOSED_EARLY),
    ("half a head", _half_a_head, Ended.CLOSED_EARLY),
    ("not HTTP", replying(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"), Ended.MALFORMED),
    ("length and chunks", replying(SSE_HEAD[:-2] + b"content-length: 3\r\n\r\nabc"), Ended.MALFORMED),
    ("two lengths", replying(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab"), Ended.MALFORMED),
    ("switching protocols", replying(b"HTTP/1.1 101 Switching\r\nupgrade: x\r\n\r\n"), Ended.MALFORMED),
    ("a head without end", replying(b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 12_000), Ended.MALFORMED),
    ("a folded field", replying(b"HTTP/1.1 200 OK\r\nx: a\r\n b\r\ncontent-length: 0\r\n\r\n"), Ended.MALFORMED),
]


@pytest.mark.parametrize(("script", "ended"), [row[1:] for row in FAILING], ids=[row[0] for row in FAILING])
async def test_the_next_target_answers_when_one(script: Script, ended: Ended) -> None:
    async with (
        upstream(script) as bad, upstream(replying(whole(200, b"good"))) as good,
        relaying(bad.port, good.port) as relay, connected(relay.port) as client,
    ):  # fmt: skip
        await client.send(post("/v1/x", b'{"model":"m"}'))
        answer = await client.answer()
        assert (answer.status, answer.body, answer.headers["x-llmgw-target"]) == (200, b"good", "t1")
        outcome = await relay.outcome()
        assert [attempt.ended for attempt in outcome.attempts] == [ended, Ended.COMPLETE]
        assert [failed.ended for failed in relay.plans[0].failed] == [ended]
        assert len(bad.conversations) == 1


SHOWN = {"500", "502", "504", "503", "429"}


@pytest.mark.parametrize(
    ("name", "script", "ended"), [row for row in FAILING if "chunks" not in row[0]], ids=lambda value: str(value)[:24]
)
async def test_the_last_target_s_own_words_reach_the_client_unless_they_are_about_us(
    name: str, script: Script, ended: Ended
) -> None:
    async with upstream(script) as bad, relaying(bad.port) as relay, connected(relay.port) as client:
        await client.send(post("/v1/x", b"{}"))
        answer = await client.answer()
        outcome = await relay.outcome()
        if name in SHOWN:
            assert (answer.status, outcome.ended) == (int(name), Ended.COMPLETE)
        else:
            assert (answer.status, answer.body.decode(), outcome.ended) == (502, ended.value, ended)
            assert outcome.status is None
        # The connection to the client is as good as before.
        await client.send(post("/v1/x", b"{}"))
        assert (await client.answer()).status == answer.status


async def test_a_refused_connection_is_followed_by_the_next_target() -> None:
    with _refusing_port() as refused:
        async with (
            upstream(replying(whole(200, b"good"))) as good, relaying(refused, refused, good.port) as relay,
            connected(relay.port) as client,
        ):  # fmt: skip
            await client.send(post("/v1/x", b"{}"))
            assert (await client.answer()).body == b"good"
            outcome = await relay.outcome()
            expected = [Ended.CONNECT_FAILED, Ended.CONNECT_FAILED, Ended.COMPLETE]
            assert [attempt.ended for attempt in outcome.attempts] == expected
            assert outcome.attempts[0].detail


async def test_when_nobody_answers_the_application_does() -> None:
    with _refusing_port() as refused:
        async with relaying(refused, refused) as relay, connected(relay.port) as client:
            await client.send(post("/v1/x", b"{}"))
            assert ((answer := await client.answer()).status, answer.body) == (502, b"connect_failed")


async def test_a_plan_without_targets_is_no_target() -> None:
    async with relaying() as relay, connected(relay.port) as client:
        await client.send(post("/v1/x", b"{}"))
        assert (await client.answer()).body == b"no_target"
        assert (await relay.outcome()).attempts == ()


async def test_a_host_that_swallows_the_handshake_is_given_up_in_time() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        limits = replace(DEFAULT_POOL_LIMITS, connect_timeout_s=1.0)
        async with (
            upstream(replying(whole(200, b"good"))) as good,
            relaying(full.getsockname()[1], good.port, pool_limits=limits) as relay, connected(relay.port) as client,
        ):  # fmt: skip
            await client.send(post("/v1/x", b"{}"))
            assert (await client.answer()).body == b"good"
            assert (await relay.outcome()).attempts[0].ended is Ended.CONNECT_FAILED
        for filler in fillers:
            filler.close()


async def test_a_silent_target_does_not_delay_requests_to_another() -> None:
    async def silent(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.wait_closed()

    async with (
        upstream(silent) as quiet, upstream(replying(whole(200, b"good"))) as good,
        relaying(quiet.port) as stuck, relaying(good.port) as relay,
        connected(stuck.port) as waiting, connected(relay.port) as client,
    ):  # fmt: skip
        await waiting.send(post("/v1/x", b"{}"))
        for _ in range(20):
            await client.send(post("/v1/x", b"{}"))
            assert (await client.answer()).body == b"good"


async def test_a_target_that_says_nothing_for_too_long_is_followed_by_the_next() -> None:
    async def silent(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.wait_closed()

    limits = replace(DEFAULT_POOL_LIMITS, sweep_s=0.02)
    async with (
        upstream(silent) as quiet, upstream(replying(whole(200, b"good"))) as good,
        relaying(quiet.port, good.port, pool_limits=limits, timeouts_s=(1.0, None)) as relay,
        connected(relay.port) as client,
    ):  # fmt: skip
        await client.send(post("/v1/x", b"{}"))
        assert (await client.answer()).body == b"good"
        outcome = await relay.outcome()
        assert [attempt.ended for attempt in outcome.attempts] == [Ended.FIRST_BYTE_TIMEOUT, Ended.COMPLETE]
        await quiet.conversations[0].closed.wait()


async def test_a_connection_that_the_upstream_closed_while_idle_is_replaced_without_a_failure() -> None:
    idle = asyncio.Event()

    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.say(whole(200, b"once"))
        await idle.wait()
        conversation.reset()

    async with upstream(script) as up, relaying(up.port) as relay, connected(relay.port) as client:
        for _ in range(5):
            await client.send(post("/v1/x", b"{}"))
            assert (await client.answer()).body == b"once"
            idle.set()
            await asyncio.sleep(0.01)
            idle.clear()
        assert [len((await relay.outcome(number)).attempts) for number in range(5)] == [1] * 5


async def test_a_stale_connection_found_only_by_using_it_is_replaced_without_a_failure() -> None:
    """The race of keep-alive: the upstream closes while our request is on its way."""

    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.say(whole(200, b"once"))
        await conversation.request()
        conversation.reset()

    async with upstream(script) as up, relaying(up.port) as relay, connected(relay.port) as client:
        for _ in range(6):
            await client.send(post("/v1/x", b"{}"))
            assert ((answer := await client.answer()).status, answer.body) == (200, b"once")
        assert [len((await relay.outcome(number)).attempts) for number in range(6)] == [1] * 6


async def test_an_upstream_that_dies_on_every_request_is_asked_twice_at_most() -> None:
    """Once over a connection that may be stale, once over a fresh one; not for ever."""

    async def script(conversation: Conversation) -> None:
        await conversation.request()
        if len(up.conversations) == 1:
            await conversation.say(whole(200, b"once"))
            await conversation.request()
        conversation.reset()

    async with upstream(script) as up, relaying(up.port) as relay, connected(relay.port) as client:
        await client.send(post("/v1/x", b"{}"))
        assert (await client.answer()).body == b"once"
        await client.send(post("/v1/x", b"{}"))
        assert (await client.answer()).body == b"closed_early"
        assert len(up.conversations) == 2


async def test_bytes_that_nobody_asked_for_are_no_answer_to_the_next_request() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.say(whole(200, b"mine"))
        await asyncio.sleep(0.01)
        await conversation.say(whole(200, b"smuggled"))
        await conversation.wait_closed()

    async with upstream(script) as up, relaying(up.port) as relay, connected(relay.port) as client:
        for _ in range(3):
            await client.send(post("/v1/x", b"{}"))
            assert (await client.answer()).body == b"mine"
            await up.conversations[-1].closed.wait()
