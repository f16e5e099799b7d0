"""Streams that are silent for long, in each API: comments, then the answer, or an error in the client's own words."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from openai import APIError, AsyncOpenAI

from core.api import RouteTable
from core.http.limits import DEFAULT_LIMITS
from core.http.patience import COMMENT
from tests.fakes.upstream import Behaviour, FakeUpstream
from tests.integration.gateway.harness import CHAT, Gateway, chat, gateway, join_chunks, render_request, target_of
from tests.patience import SOON_S
from tests.unit.gateway.tables import model, table, unready

LIMITS = replace(DEFAULT_LIMITS, comment_s=0.05, sweep_s=0.01)
MESSAGES, RESPONSES = "/v1/messages", "/v1/responses"
QUIET = Behaviour(head_pause_s=60, finish="stop")
BODIES: dict[str, dict[str, object]] = {
    CHAT: {"messages": [{"role": "user", "content": "hi"}]},
    MESSAGES: {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5},
    RESPONSES: {"input": "hi"},
}
OWN = [CHAT, MESSAGES, RESPONSES]
"""An engine that speaks them all; one that names none is asked for chat completions."""


def body_of(path: str, name: str = "m") -> bytes:
    return json.dumps({"model": name, "stream": True} | BODIES[path]).encode()


@asynccontextmanager
async def asking(gw: Gateway, path: str, body: bytes = b"") -> AsyncIterator[asyncio.StreamReader]:
    """A client that asks for a stream and has heard three comments; the head is read."""
    reader, writer = await asyncio.open_connection(gw.host, gw.port)
    try:
        writer.write(render_request(path, body or body_of(path), {"connection": "close", "x-request-id": "r1"}))
        async with asyncio.timeout(SOON_S):
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 OK\r\n")
            assert b"\r\nx-request-id: r1\r\n" in head
            for _ in range(3):
                await reader.readuntil(COMMENT)
        yield reader
    finally:
        writer.close()


async def read_events(reader: asyncio.StreamReader) -> tuple[list[str], bool]:
    """What is said after the comments, event by event, and whether the end is clean."""
    async with asyncio.timeout(SOON_S):
        data = await reader.read()
    is_clean = data.endswith(b"0\r\n\r\n")
    rest = join_chunks(data.removeprefix(b"\r\n")).replace(COMMENT, b"")
    return [event.strip() for event in rest.decode().split("\n\n") if event.strip()], is_clean


def error_of(event: str, path: str) -> dict[str, object]:
    """The inside of an error event; asserts that it is in the words of its API."""
    if path == CHAT:
        told = json.loads(event.removeprefix("data: "))
        assert set(told) == {"error"}
        return dict(told["error"])
    assert event.startswith("event: error\ndata: ")
    told = json.loads(event.removeprefix("event: error\ndata: "))
    assert told["type"] == "error"
    return dict(told if path == RESPONSES else told["error"])


@pytest.mark.parametrize("lane", ["fast lane", "resource"])
@pytest.mark.parametrize("asked", ["m", "alias"])
@pytest.mark.parametrize("path", OWN)
@pytest.mark.parametrize("routes", [OWN, []], ids=["relayed", "translated"])
async def test_an_engine_that_reads_for_long_keeps_its_client(
    tmp_path: Path, lane: str, asked: str, path: str, routes: list[str]
) -> None:
    async with FakeUpstream(QUIET) as engine:
        known = table(model("m", target_of(engine, routes=routes), aliases=("alias",)))
        async with (
            gateway(tmp_path, known, lane=lane, limits=LIMITS) as gw,
            asking(gw, path, body_of(path, asked)) as reader,
        ):
            engine.release()
            events, is_clean = await read_events(reader)
    assert is_clean
    words = "".join(events)
    assert [f"w{number} " in words for number in range(5)] == [True] * 5


@pytest.mark.parametrize("asked", ["m", "alias"])
@pytest.mark.parametrize("path", OWN)
@pytest.mark.parametrize("routes", [OWN, []], ids=["relayed", "translated"])
@pytest.mark.parametrize(
    ("status", "said"),
    [(400, b'{\n "error": {"message": "too long",\n "code": "x"}\n}'), (500, b'{"error":{"message":"too long"}}')],
)
async def test_an_engines_late_refusal_is_an_event_in_the_clients_words(
    tmp_path: Path, asked: str, path: str, routes: list[str], status: int, said: bytes
) -> None:
    async with FakeUpstream(replace(QUIET, status=status, body=said)) as engine:
        known = table(model("m", target_of(engine, routes=routes), aliases=("alias",)))
        async with gateway(tmp_path, known, limits=LIMITS) as gw:
            async with asking(gw, path, body_of(path, asked)) as reader:
                engine.release()
                events, is_clean = await read_events(reader)
            assert not is_clean
            (event,) = events
            assert error_of(event, path)["message"] == "too long"
            assert engine.open == 0


@pytest.mark.parametrize("path", OWN)
@pytest.mark.parametrize("asked", ["m", "alias"])
async def test_an_engine_that_answers_without_a_stream_is_an_error(tmp_path: Path, path: str, asked: str) -> None:
    async with FakeUpstream(replace(QUIET, status=201)) as engine:  # the fake streams only a 200
        known = table(model("m", target_of(engine, routes=OWN), aliases=("alias",)))
        async with gateway(tmp_path, known, limits=LIMITS) as gw, asking(gw, path, body_of(path, asked)) as reader:
            engine.release()
            events, is_clean = await read_events(reader)
    assert not is_clean
    assert error_of(events[0], path)["code" if path != MESSAGES else "type"] in ("upstream_failed", "api_error")


def loading(state: str = "stopped", reason: str = "") -> RouteTable:
    return table(model("m", unready(state, request_startup_wait_ms=60_000, reason=reason)))


@pytest.mark.parametrize("path", OWN)
async def test_a_model_that_loads_for_long_keeps_its_client(tmp_path: Path, path: str) -> None:
    async with (
        FakeUpstream(Behaviour(finish="stop")) as engine,
        gateway(tmp_path, loading(), limits=LIMITS) as gw,
        asking(gw, path) as reader,
    ):
        ready = table(model("m", target_of(engine, "t1")))
        gw.daemon.publish(msgspec.structs.replace(ready, version=2))
        events, is_clean = await read_events(reader)
    assert is_clean
    assert "w4 " in "".join(events)


@pytest.mark.parametrize("path", OWN)
async def test_a_load_that_fails_after_comments_is_an_event(tmp_path: Path, path: str) -> None:
    async with gateway(tmp_path, loading("starting"), limits=LIMITS) as gw, asking(gw, path) as reader:
        gw.daemon.publish(msgspec.structs.replace(loading("failed", reason="no memory"), version=2))
        events, is_clean = await read_events(reader)
    assert not is_clean
    (event,) = events
    told = error_of(event, path)
    assert told["message"] == "The model 'm' has failed: no memory."
    assert told["code"] == "runtime_failed"


async def test_a_request_that_queues_for_long_hears_comments_and_then_its_turn(tmp_path: Path) -> None:
    async with FakeUpstream(QUIET) as engine:
        known = table(model("m", target_of(engine, max_concurrency=1)))
        async with (
            gateway(tmp_path, known, limits=LIMITS) as gw,
            asking(gw, CHAT) as first,
            asking(gw, CHAT) as second,
        ):
            assert len(engine.seen) == 1
            engine.release()
            assert [(await read_events(each))[1] for each in (first, second)] == [True, True]
    assert len(engine.seen) == 2


async def test_embeddings_are_never_a_stream(tmp_path: Path) -> None:
    async with (
        FakeUpstream(QUIET) as engine,
        gateway(tmp_path, table(model("m", target_of(engine))), limits=LIMITS) as gw,
    ):
        reader, writer = await asyncio.open_connection(gw.host, gw.port)
        writer.write(render_request("/v1/embeddings", b'{"model":"m","input":"x","stream":true}'))
        await engine.wait_for(lambda: engine.open == 1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5 * LIMITS.comment_s):
                await reader.read(1)
        writer.close()
        await engine.wait_for(lambda: engine.abandoned == 1)


async def test_the_official_sdk_reads_through_comments_and_raises_the_late_error(tmp_path: Path) -> None:
    async with (
        FakeUpstream(QUIET) as engine,
        gateway(tmp_path, table(model("m", target_of(engine))), limits=LIMITS) as gw,
        AsyncOpenAI(base_url=f"{gw.url}/v1", api_key="any", max_retries=0) as client,
    ):
        said = json.loads(chat())["messages"]
        stream = await client.chat.completions.create(model="m", messages=said, stream=True)
        engine.release()
        words = [event.choices[0].delta.content or "" async for event in stream]
        assert "".join(words) == "w0 w1 w2 w3 w4 "
    async with (
        FakeUpstream(replace(QUIET, status=400, body=b'{"error":{"message":"too long"}}')) as engine,
        gateway(tmp_path, table(model("m", target_of(engine))), limits=LIMITS) as gw,
        AsyncOpenAI(base_url=f"{gw.url}/v1", api_key="any", max_retries=0) as client,
    ):
        stream = await client.chat.completions.create(model="m", messages=said, stream=True)
        engine.release()
        with pytest.raises(APIError, match="too long"):
            async for _ in stream:
                pass
