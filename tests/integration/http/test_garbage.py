"""Mutilated messages from both sides: an answer or an end always comes, and nothing is raised anywhere."""

import asyncio
import random

import pytest

from tests.integration.http.harness import (
    LAST_CHUNK,
    SSE_HEAD,
    Conversation,
    RawClient,
    chunk,
    connected,
    echo,
    post,
    relaying,
    serving,
    upstream,
    whole,
)
from tests.patience import SOON_S

pytestmark = pytest.mark.usefixtures("both_ways")

_REQUESTS = [
    post("/v1/x", b'{"model":"m"}', "X: y"),
    b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nT: v\r\n\r\n",
    b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
]
_RESPONSES = [
    whole(200, b"hello", "server: x"),
    SSE_HEAD + chunk(b"data: {}\n\n") * 3 + LAST_CHUNK,
    b"HTTP/1.1 100 Continue\r\n\r\n" + whole(503, b"busy"),
]
_ROUNDS = 150


def _mutilate(chance: random.Random, data: bytes) -> bytes:
    """Cut, double, overwrite or insert at a few random places."""
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(data) + 1)
        size = chance.choice((1, 1, 2, 7))
        kind = chance.randrange(4)
        if kind == 0:
            data = data[:at] + data[at + size :]
        elif kind == 1:
            data = data[:at] + data[at : at + size] * 2 + data[at + size :]
        else:
            alphabet = (b"\r\n", b"\n", b"\0", b":", b" ", b"0", b"9", b"\xff", b"\r", b"HTTP/1.1")
            data = data[:at] + chance.choice(alphabet) + data[at + size * (kind - 2) :]
    return data


async def _read_to_end(client: RawClient) -> None:
    try:
        client.writer.write_eof()
        await client.reader.read()
    except ConnectionError:
        return


@pytest.mark.parametrize("seed", range(3))
async def test_a_mutilated_request_is_answered_or_ends(seed: int) -> None:
    chance = random.Random(seed)
    async with serving(echo) as served:
        for _ in range(_ROUNDS):
            async with connected(served.port) as client:
                data = _mutilate(chance, chance.choice(_REQUESTS) * chance.randint(1, 3))
                middle = chance.randrange(len(data) + 1)
                client.writer.write(data[:middle])
                await asyncio.sleep(0)
                client.writer.write(data[middle:])
                await asyncio.sleep(0.002)
                await _read_to_end(client)
        assert served.errors == []
        async with connected(served.port) as client:
            await client.send(post("/v1/x", b"fine"))
            assert (await client.answer()).json["begin"] == "fine"


@pytest.mark.parametrize("seed", range(3))
async def test_a_mutilated_response_ends_its_request_and_no_other(seed: int) -> None:
    chance = random.Random(seed)
    answers: list[bytes] = []

    async def script(conversation: Conversation) -> None:
        while True:
            await conversation.request()
            await conversation.say(answers.pop() if answers else whole(200, b"fine"))
            if chance.random() < 0.7:
                conversation.close()
                return

    async with upstream(script) as up, relaying(up.port) as relay:
        for number in range(_ROUNDS):
            answers[:] = [_mutilate(chance, chance.choice(_RESPONSES))]
            async with connected(relay.port) as client:
                await client.send(post("/v1/x", b"{}"))
                while len(relay.plans) == number:  # noqa: ASYNC110 - until it is asked for
                    await asyncio.sleep(0)
                # A whole answer, a cut one, or none; then the client leaves.
                try:
                    async with asyncio.timeout(0.05):
                        await client.reader.read(1)
                except (TimeoutError, ConnectionError):
                    pass
        for number in range(_ROUNDS):
            async with asyncio.timeout(SOON_S):
                await relay.outcome(number)
        answers.clear()
        async with connected(relay.port) as client:
            await client.send(post("/v1/x", b"{}"))
            assert (await client.answer()).body == b"fine"
        assert relay.errors == []
