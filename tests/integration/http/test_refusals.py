"""An upstream's refusal that is read instead of passed on, for an application that says it in other words."""

import pytest

from core.http.verdict import Ended
from tests.integration.http.harness import (
    LAST_CHUNK,
    Conversation,
    ListedPlan,
    RelayingApp,
    chunk,
    connected,
    post,
    relaying,
    replying,
    upstream,
    whole,
)


class ReadingApp(RelayingApp):
    """Wants to know what an upstream says against a request."""

    def make_plan(self) -> ListedPlan:
        plan = super().make_plan()
        plan.reads_refusals = True
        return plan


CHUNKED = b"HTTP/1.1 400 No\r\nx: y\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "status", "body"),
    [
        (whole(400, b"why", "x: y"), 400, b"why"),
        (whole(404, b"", "x: y"), 404, b""),
        (CHUNKED + chunk(b"wh") + chunk(b"y") + LAST_CHUNK, 400, b"why"),
        (whole(429, b"busy", "x: y"), 429, b"busy"),
        (whole(500, b"broken", "x: y", "connection: close"), 500, b"broken"),
    ],
    ids=["a length", "no body", "chunks", "the last target is busy", "the last target failed"],
)
async def test_it_is_told_with_the_outcome(answer: bytes, status: int, body: bytes) -> None:
    async with upstream(replying(answer)) as engine, relaying(engine.port, app_type=ReadingApp) as relay:
        async with connected(relay.port) as client:
            await client.send(post("/a", b"x"))
            told = await client.answer()
        outcome = await relay.outcome()
    assert (told.status, told.body) == (502, b"%d %b" % (status, body)), "the application answers, not the relay"
    assert outcome.refusal is not None
    assert (outcome.refusal.status, outcome.refusal.body) == (status, body)
    assert (b"x", b"y") in outcome.refusal.headers
    assert outcome.status is None and outcome.attempts[-1].status == status


async def test_a_good_answer_passes_as_always() -> None:
    async with upstream(replying(whole(200, b"yes"))) as engine, relaying(engine.port, app_type=ReadingApp) as relay:
        async with connected(relay.port) as client:
            for _ in range(6):  # often enough for the head to be recalled
                await client.send(post("/a", b"x"))
                told = await client.answer()
                assert (told.status, told.body) == (200, b"yes")
        assert (await relay.outcome()).refusal is None


async def test_one_that_never_ends_is_cut() -> None:
    async with (
        upstream(replying(whole(400, b"x" * (1 << 20)))) as engine,
        relaying(engine.port, app_type=ReadingApp) as relay,
        connected(relay.port) as client,
    ):
        await client.send(post("/a", b"x"))
        await client.answer()
        outcome = await relay.outcome()
    assert outcome.refusal is not None and 64 << 10 <= len(outcome.refusal.body) < 1 << 20


async def test_one_that_breaks_off_is_followed_by_the_next_target() -> None:
    async def break_off(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.say(b"HTTP/1.1 400 No\r\ncontent-length: 100\r\n\r\nhalf")

    async with (
        upstream(break_off) as engine,
        upstream(replying(whole(200, b"yes"))) as other,
        relaying(engine.port, other.port, app_type=ReadingApp) as relay,
        connected(relay.port) as client,
    ):
        await client.send(post("/a", b"x"))
        told = await client.answer()
        outcome = await relay.outcome()
    assert (told.status, told.body) == (200, b"yes")
    assert outcome.attempts[0].ended is Ended.UPSTREAM_BROKEN
    assert outcome.refusal is None
