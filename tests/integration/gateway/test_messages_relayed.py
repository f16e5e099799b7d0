"""Anthropic's API in front of engines that speak it: bytes as they are, but for names, errors and endings."""

import asyncio
import json
from pathlib import Path

import pytest

from core.api import RouteModel
from tests.fakes.upstream import Behaviour, FakeUpstream
from tests.integration.gateway.harness import gateway, raw_request, render_request, target_of
from tests.unit.gateway.tables import model, table

MESSAGES = "/v1/messages"
COUNT = "/v1/messages/count_tokens"
ROUTES = [MESSAGES, COUNT]
ASKED: dict[str, object] = {
    "model": "m",
    "max_tokens": 5,
    "messages": [{"role": "user", "content": "hi"}],
    "own": [1, 2],
}


def body(**fields: object) -> bytes:
    return json.dumps(ASKED | fields).encode()


def a_model(engine: FakeUpstream) -> RouteModel:
    return model("m", target_of(engine, routes=ROUTES), aliases=("x",))


@pytest.mark.parametrize("path", [MESSAGES, COUNT])
async def test_request_and_answer_are_relayed_byte_for_byte(tmp_path: Path, path: str) -> None:
    said = b'{ "type":"message","model":"m",  "new": {"model": "other"} }'
    async with FakeUpstream(Behaviour(body=said)) as engine, gateway(tmp_path, table(a_model(engine))) as gw:
        headers = {"x-api-key": "k", "anthropic-version": "2023-06-01"}
        answer = await raw_request((gw.host, gw.port), path + "?beta=true", body(), headers)
    seen = engine.seen[0]
    assert (seen.path, seen.body) == (path, body())
    assert (answer.status, answer.body) == (200, said)
    assert "x-api-key" not in {name.lower() for name in seen.headers}
    assert seen.headers["anthropic-version"] == "2023-06-01"


async def test_an_alias_changes_the_name_alone(tmp_path: Path) -> None:
    said = b'{"type":"message","model":"m","new":{"model":"other"}}'
    async with FakeUpstream(Behaviour(body=said)) as engine, gateway(tmp_path, table(a_model(engine))) as gw:
        answer = await raw_request((gw.host, gw.port), MESSAGES, body(model="x"))
    assert json.loads(engine.seen[0].body) == ASKED
    assert json.loads(answer.body) == {"type": "message", "model": "x", "new": {"model": "other"}}


REFUSALS: list[tuple[int, bytes, int, str, str]] = [
    (400, b'{"error":{"code":400,"message":"too long","type":"x"}}', 400, "invalid_request_error", "too long"),
    (404, b"nothing here", 404, "not_found_error", "The engine refused the request with status 404."),
    (429, b'{"error":{"message":"busy"}}', 429, "rate_limit_error", "busy"),
    (500, b'{"error":{"message":"broken"}}', 500, "api_error", "broken"),
    (401, b'{"error":{"message":"Invalid API Key"}}', 502, "api_error", "did not accept the gateway's own key"),
]


@pytest.mark.parametrize("name", ["m", "x"], ids=["relayed", "renamed"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("status", "said", "told", "type_", "words"), REFUSALS)
async def test_an_engines_refusal_is_told_in_anthropics_envelope(
    tmp_path: Path, name: str, stream: bool, status: int, said: bytes, told: int, type_: str, words: str
) -> None:
    how = Behaviour(status=status, body=said, headers={"retry-after": "7"})
    async with FakeUpstream(how) as engine, gateway(tmp_path, table(a_model(engine))) as gw:
        answer = await raw_request((gw.host, gw.port), MESSAGES, body(model=name, stream=stream))
    assert answer.status == told
    assert json.loads(answer.body)["type"] == "error"
    assert answer.error["type"] == type_ and words in answer.error["message"]
    assert answer.headers["content-type"] == "application/json" and answer.headers["x-request-id"]
    assert told == 502 or (answer.headers["retry-after"], answer.headers["x-llmgw-target"]) == ("7", "t1")


async def test_a_refusal_of_one_is_no_refusal_where_another_answers(tmp_path: Path) -> None:
    async with FakeUpstream(Behaviour(status=503)) as busy, FakeUpstream() as good:
        targets = [target_of(busy, "busy", routes=ROUTES), target_of(good, "good", routes=ROUTES)]
        async with gateway(tmp_path, table(model("m", *targets))) as gw:
            answers = [await raw_request((gw.host, gw.port), MESSAGES, body()) for _ in range(4)]
    assert {(answer.status, answer.headers["x-llmgw-target"]) for answer in answers} == {(200, "good")}


async def test_targets_of_both_kinds_serve_one_model_each_in_its_own_dialect(tmp_path: Path) -> None:
    own_words = b'{"type":"message","model":"m","content":[{"type":"text","text":"Rome"}]}'
    async with FakeUpstream(Behaviour(body=own_words)) as own, FakeUpstream() as chat:
        targets = [target_of(own, "own", routes=ROUTES), target_of(chat, "chat", routes=["/v1/chat/completions"])]
        async with gateway(tmp_path, table(model("m", *targets))) as gw:
            answers = [await raw_request((gw.host, gw.port), MESSAGES, body()) for _ in range(6)]
    assert {seen.path for seen in own.seen} == {MESSAGES}
    assert {seen.path for seen in chat.seen} == {"/v1/chat/completions"}
    texts = {(a.headers["x-llmgw-target"], json.loads(a.body)["content"][0]["text"]) for a in answers}
    assert texts == {("own", "Rome"), ("chat", "Paris")}


@pytest.mark.parametrize("name", ["m", "x"], ids=["relayed", "renamed"])
async def test_a_stream_that_breaks_ends_with_anthropics_error_event(tmp_path: Path, name: str) -> None:
    how = Behaviour(break_after=3, pause_s=0.01)
    async with FakeUpstream(how) as engine, gateway(tmp_path, table(a_model(engine))) as gw:
        reader, writer = await asyncio.open_connection(gw.host, gw.port)
        writer.write(render_request(MESSAGES, body(model=name, stream=True)))
        async with asyncio.timeout(10):
            data = await reader.read()
        writer.close()
    assert b'event: error\ndata: {"type":"error"' in data and b"upstream_broken" in data
    assert not data.endswith(b"0\r\n\r\n"), "the end must be unclean"


@pytest.mark.parametrize("name", ["m", "x"], ids=["relayed", "renamed"])
@pytest.mark.parametrize("path", [MESSAGES, COUNT])
@pytest.mark.parametrize(
    ("how", "stream"),
    [(Behaviour(head_pause_s=30), False), (Behaviour(head_pause_s=30), True), (Behaviour(pause_s=30), True)],
    ids=["plain", "before the first byte", "after the first byte"],
)
async def test_a_client_that_leaves_ends_the_engines_work(
    tmp_path: Path, name: str, path: str, how: Behaviour, stream: bool
) -> None:
    async with FakeUpstream(how) as engine, gateway(tmp_path, table(a_model(engine))) as gw:
        reader, writer = await asyncio.open_connection(gw.host, gw.port)
        writer.write(render_request(path, body(model=name, stream=stream)))
        if stream and not how.head_pause_s:
            await reader.readuntil(b"w0")
        async with asyncio.timeout(10):
            await engine.wait_for(lambda: engine.open == 1)
        writer.close()
        async with asyncio.timeout(1.0):
            await engine.wait_for(lambda: engine.abandoned == 1 and engine.open == 0)


@pytest.mark.parametrize("routes", [ROUTES, ["/v1/chat/completions"]], ids=["relayed", "translated"])
@pytest.mark.parametrize(
    ("how", "fields"),
    [
        (Behaviour(), {}),
        (Behaviour(), {"stream": True}),
        (Behaviour(), {"messages": []}),
        (Behaviour(), {"messages": [{"role": "robot", "content": "x"}]}),
        (Behaviour(status=400, body=b"{}"), {}),
        (Behaviour(status=500, body=b"{}"), {"stream": True}),
        (Behaviour(status=401), {}),
        (Behaviour(body=b"<html>"), {}),
        (Behaviour(break_after=2), {"stream": True}),
    ],
    ids=["good", "a stream", "empty", "wrong", "refused", "failed", "not our key", "garbage", "broken"],
)
async def test_however_a_request_ends_its_slot_is_free_again(
    tmp_path: Path, routes: list[str], how: Behaviour, fields: dict[str, object]
) -> None:
    async with FakeUpstream(how) as engine:
        only = target_of(engine, routes=routes, max_concurrency=1, max_queued_requests=0)
        async with gateway(tmp_path, table(model("m", only))) as gw:
            await raw_request((gw.host, gw.port), MESSAGES, body(**fields))
            engine.behaviour = Behaviour()
            again = await raw_request((gw.host, gw.port), MESSAGES, body())
    assert again.status == 200, again.body
