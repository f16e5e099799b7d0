"""Every row of `request_table`, sent in one piece and cut into small ones: the right answers, and never a 500."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from core.http.limits import DEFAULT_LIMITS
from tests.fakes.upstream import FakeUpstream
from tests.integration.gateway.harness import gateway, target_of
from tests.integration.gateway.request_table import MODELS, ROWS, Row
from tests.integration.http.harness import Answer, RawClient, connected
from tests.unit.gateway.tables import model, table

LIMITS = replace(DEFAULT_LIMITS, body_timeout_s=1.0, linger_s=0.2, sweep_s=0.05)
LARGE_BYTES = 200_000
ANSWER_S = 30.0


async def _write(client: RawClient, data: bytes, step: int) -> None:
    try:
        for at in range(0, len(data), step):
            await client.send(data[at : at + step])
            await asyncio.sleep(0)
    except ConnectionError:
        pass  # refused before its end


def _worded(answer: Answer, *, head: bool) -> str:
    """A status, and for an error its code."""
    if head:
        return f"{answer.status} head"
    assert answer.complete
    error = answer.json["error"] if answer.status >= 400 else None
    return f"{answer.status} {error['code']}" if isinstance(error, dict) else str(answer.status)


@asynccontextmanager
async def _gateway(directory: Path) -> AsyncIterator[tuple[int, FakeUpstream]]:
    async with (
        FakeUpstream() as engine,
        gateway(directory, table(model("m", target_of(engine))), limits=LIMITS) as gw,
    ):
        yield gw.port, engine


@pytest.mark.parametrize("pieces", ["whole", "in pieces"])
@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
async def test_a_request_is_answered_as_the_table_says(tmp_path: Path, row: Row, pieces: str) -> None:
    step = (
        len(row.sent) if pieces == "whole" else max(1, len(row.sent) // 97) if len(row.sent) < LARGE_BYTES else 65_521
    )
    async with _gateway(tmp_path) as (port, engine), connected(port) as client:
        writing = asyncio.ensure_future(_write(client, row.sent, step))
        async with asyncio.timeout(ANSWER_S):
            for expected in row.answers:
                head = expected.endswith(" head")
                answer = await client.answer(head=head)
                if answer.status == 100:
                    answer = await client.answer(head=head)
                assert _worded(answer, head=head) == expected
            await writing
            if row.lives:
                await client.send(MODELS)
                assert (await client.answer()).status == 200
            else:
                assert await client.is_closed()
            assert len(engine.seen) == row.seen
            async with connected(port) as other:
                await other.send(MODELS)
                assert (await other.answer()).status == 200


def test_the_table_is_no_smaller_than_it_was() -> None:
    assert len(ROWS) >= 140
    assert len({row.name for row in ROWS}) == len(ROWS)
