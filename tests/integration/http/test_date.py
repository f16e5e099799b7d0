"""Every answer says when it was made, whoever made it."""

from email.utils import parsedate_to_datetime
from time import time

import pytest

from core.http.date import render_date
from tests.integration.http.harness import (
    GET,
    LAST_CHUNK,
    SSE_HEAD,
    Answer,
    chunk,
    connected,
    echo,
    post,
    relaying,
    replying,
    serving,
    upstream,
    whole,
)

_OLD = "date: Sun, 06 Nov 1994 08:49:37 GMT"


def _is_now(answer: Answer) -> bool:
    return abs(parsedate_to_datetime(answer.headers["date"]).timestamp() - time()) < 30


def test_the_line_is_that_of_the_rfc() -> None:
    assert render_date(784_111_777) == b"date: Sun, 06 Nov 1994 08:49:37 GMT\r\n"


async def test_the_applications_answer_and_a_refusal_are_dated() -> None:
    async with serving(echo) as served, connected(served.port) as client:
        await client.send(GET + b"nonsense\r\n\r\n")
        assert _is_now(await client.answer())
        assert _is_now(await client.answer())


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize(
    "said",
    [whole(200, b"x", _OLD), whole(404, b"x"), SSE_HEAD + chunk(b"data: {}\n\n") + LAST_CHUNK],
    ids=["an engine with a clock", "one without", "a stream"],
)
async def test_a_relayed_answer_has_our_date_and_no_other(said: bytes) -> None:
    async with upstream(replying(said)) as up, relaying(up.port) as relay, connected(relay.port) as client:
        for _ in range(3):  # the second and third are recalled, not parsed
            await client.send(post("/v1/x", b"{}"))
            head = (await client.reader.readuntil(b"\r\n\r\n")).decode()
            assert head.lower().count("\r\ndate:") == 1
            assert "1994" not in head
            await client.reader.readuntil(LAST_CHUNK if b"chunked" in said else b"x")
