"""Requests to an upstream whose answer is read here."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from core.http.exchange import ExchangeError, exchange
from core.http.limits import DEFAULT_POOL_LIMITS, PoolLimits
from core.http.pool import Target, UpstreamPool
from core.http.verdict import Ended
from tests.integration.http.harness import (
    LAST_CHUNK,
    SSE_HEAD,
    Conversation,
    aim,
    chunk,
    replying,
    upstream,
    whole,
)
from tests.patience import SOON_S

pytestmark = pytest.mark.usefixtures("both_ways")


@asynccontextmanager
async def _target(port: int, limits: PoolLimits = DEFAULT_POOL_LIMITS) -> AsyncIterator[Target]:
    pool = UpstreamPool(limits)
    try:
        yield aim(pool, "t", port)
    finally:
        await pool.close()


def _ask(target: Target) -> exchange:
    return exchange(target, method=b"POST", path=b"/v1/x", headers=[(b"cookie", b"a=b"), (b"x", b"y")], body=b"{}")


@pytest.mark.parametrize(
    "response", [whole(200, b"hello"), SSE_HEAD + chunk(b"hel") + chunk(b"lo") + LAST_CHUNK], ids=["length", "chunks"]
)
async def test_a_body_is_read_without_its_framing_and_the_connection_used_again(response: bytes) -> None:
    async with upstream(replying(response)) as up, _target(up.port) as target:
        for _ in range(3):
            async with _ask(target) as answer:
                assert (answer.status, await answer.read(100)) == (200, b"hello")
        assert len(up.conversations) == 1


async def test_the_upstream_hears_our_key_and_not_the_client_s_secrets() -> None:
    heads: list[bytes] = []

    async def script(conversation: Conversation) -> None:
        heads.append((await conversation.request())[0])
        await conversation.say(whole(200, b""))

    async with upstream(script) as up, _target(up.port) as target, _ask(target) as answer:
        assert await answer.read(10) == b""
    assert b"authorization: Bearer engine-key\r\n" in heads[0]
    assert b"cookie" not in heads[0]
    assert b"x: y\r\n" in heads[0]


async def test_leaving_early_closes_the_upstream() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.say(SSE_HEAD + chunk(b"one"))
        await conversation.wait_closed()

    async with upstream(script) as up, _target(up.port) as target:
        async with _ask(target) as answer:
            assert await anext(aiter(answer)) == b"one"
        async with asyncio.timeout(SOON_S):
            await up.conversations[0].closed.wait()


async def test_a_cancelled_wait_for_the_head_closes_the_upstream() -> None:
    asked = asyncio.Event()

    async def script(conversation: Conversation) -> None:
        await conversation.request()
        asked.set()
        await conversation.wait_closed()

    async def ask(target: Target) -> None:
        async with _ask(target):
            pass

    async with upstream(script) as up, _target(up.port) as target:
        asking = asyncio.ensure_future(ask(target))
        await asked.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        async with asyncio.timeout(SOON_S):
            await up.conversations[0].closed.wait()


async def test_a_stale_connection_is_replaced() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.say(whole(200, b"once"))
        await conversation.request()
        conversation.reset()

    async with upstream(script) as up, _target(up.port) as target:
        for _ in range(4):
            async with _ask(target) as answer:
                assert await answer.read(10) == b"once"


async def test_a_broken_answer_is_an_error_after_what_had_come() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.say(SSE_HEAD + chunk(b"one"))
        conversation.close()

    async with upstream(script) as up, _target(up.port) as target, _ask(target) as answer:
        seen = []
        with pytest.raises(ExchangeError) as broken:
            async for data in answer:
                seen.append(data)
        assert (seen, broken.value.ended) == ([b"one"], Ended.UPSTREAM_BROKEN)


async def test_an_upstream_that_is_not_there_is_an_error() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        async with _target(bound.getsockname()[1]) as target:
            with pytest.raises(ExchangeError, match="t: connect failed") as refused:
                async with _ask(target):
                    pass
            assert refused.value.ended is Ended.CONNECT_FAILED


async def test_an_answer_that_is_too_long_is_not_read_to_its_end() -> None:
    async with upstream(replying(whole(200, b"x" * 1_000_000))) as up, _target(up.port) as target:
        async with _ask(target) as answer:
            with pytest.raises(ExchangeError):
                await answer.read(1000)
        await up.conversations[0].closed.wait()


async def test_a_reader_who_is_slow_holds_the_upstream_back() -> None:
    said = 0

    async def script(conversation: Conversation) -> None:
        nonlocal said
        await conversation.request()
        await conversation.say(b"HTTP/1.1 200 OK\r\ncontent-length: 40000000\r\n\r\n")
        for _ in range(4000):
            await conversation.say(b"x" * 10_000)
            said += 10_000
        await conversation.request()

    async with upstream(script) as up, _target(up.port) as target, _ask(target) as answer:
        before = -1
        while said != before:  # until nothing moves any more
            before = said
            await asyncio.sleep(0.1)
        assert said < 12_000_000
        assert len(await answer.read(50_000_000)) == 40_000_000


async def test_idle_connections_are_closed_in_time() -> None:
    limits = replace(DEFAULT_POOL_LIMITS, idle_timeout_s=0.05, sweep_s=0.02)

    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.say(whole(200, b""))
        await conversation.wait_closed()

    async with upstream(script) as up, _target(up.port, limits) as target:
        async with _ask(target) as answer:
            await answer.read(10)
        async with asyncio.timeout(SOON_S):
            await up.conversations[0].closed.wait()


async def test_a_target_that_is_dropped_keeps_no_connection() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.say(whole(200, b""))
        await conversation.wait_closed()

    async with upstream(script) as up, _target(up.port) as target:
        async with _ask(target) as answer:
            await answer.read(10)
        target.pool.retain(set())
        async with asyncio.timeout(SOON_S):
            await up.conversations[0].closed.wait()
        assert aim(target.pool, "t", up.port) is not target
