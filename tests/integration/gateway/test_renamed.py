"""Models whose engine knows them by another name, and aliases: the client sees the id that it asked for."""

import asyncio
import json
from pathlib import Path

import pytest
from falcon.testing import ASGIConductor
from openai import AsyncOpenAI

from core.api import RouteModel
from gateway.app import create_app
from tests.fakes.daemon_socket import FakeDaemon
from tests.fakes.upstream import Behaviour, FakeUpstream
from tests.integration.gateway.harness import (
    CHAT,
    chat,
    gateway,
    prepare_layout,
    raw_request,
    render_request,
    target_of,
)
from tests.patience import MOMENT_S, SOON_S
from tests.unit.gateway.tables import model, table


def renamed(engine: FakeUpstream) -> RouteModel:
    return model("m", target_of(engine, upstream_model="engine/name"), aliases=("gpt-4",))


@pytest.mark.parametrize("asked", ["m", "gpt-4"])
async def test_the_engine_hears_its_own_name_and_the_client_reads_its_own(tmp_path: Path, asked: str) -> None:
    async with (
        FakeUpstream() as engine,
        gateway(tmp_path, table(renamed(engine))) as gw,
        AsyncOpenAI(base_url=f"{gw.url}/v1", api_key="x", max_retries=0) as client,
    ):
        answer = await client.chat.completions.create(model=asked, messages=[{"role": "user", "content": "hi"}])
        stream = await client.chat.completions.create(
            model=asked, messages=[{"role": "user", "content": "hi"}], stream=True
        )
        events = [event async for event in stream]
    assert [json.loads(seen.body)["model"] for seen in engine.seen] == ["engine/name", "engine/name"]
    assert answer.model == asked and answer.choices[0].message.content == "Paris"
    assert {event.model for event in events} == {asked}
    assert "".join(event.choices[0].delta.content or "" for event in events) == "w0 w1 w2 w3 w4 "


async def test_an_alias_of_a_plain_model_is_rewritten_too(tmp_path: Path) -> None:
    async with FakeUpstream() as engine:
        routes = table(model("m", target_of(engine), aliases=("gpt-4",)))
        async with gateway(tmp_path, routes) as gw:
            answer = await raw_request((gw.host, gw.port), CHAT, chat("gpt-4"))
    assert json.loads(engine.seen[0].body)["model"] == "m"
    assert json.loads(answer.body)["model"] == "gpt-4"
    assert answer.headers["x-llmgw-target"] == "t1" and answer.headers["x-request-id"]
    assert int(answer.headers["content-length"]) == len(answer.body)


@pytest.mark.parametrize("status", [500, 503])
async def test_a_failing_target_costs_no_request_this_way_either(tmp_path: Path, status: int) -> None:
    async with FakeUpstream(Behaviour(status=status)) as bad, FakeUpstream() as good, FakeUpstream() as gone:
        dead = target_of(gone, "dead", upstream_model="x")
        await gone.__aexit__()
        targets = [target_of(bad, "bad", upstream_model="y"), dead, target_of(good, "good", upstream_model="z")]
        async with gateway(tmp_path, table(model("m", *targets))) as gw:
            answers = [await raw_request((gw.host, gw.port), CHAT, chat(stream=bool(n % 2))) for n in range(12)]
    assert {answer.status for answer in answers} == {200}
    assert {json.loads(seen.body)["model"] for seen in good.seen} == {"z"}


@pytest.mark.parametrize(
    ("how", "status", "code"),
    [(Behaviour(status=401), 502, "upstream_unauthorized"), (None, 502, "upstream_unreachable")],
)
async def test_failures_have_the_same_words(tmp_path: Path, how: Behaviour | None, status: int, code: str) -> None:
    async with FakeUpstream(how) as engine:
        routes = table(renamed(engine))
        if how is None:
            await engine.__aexit__()
        async with gateway(tmp_path, routes) as gw:
            answer = await raw_request((gw.host, gw.port), CHAT, chat())
    assert (answer.status, answer.error["code"]) == (status, code)


@pytest.mark.parametrize(
    ("how", "stream"),
    [(Behaviour(head_pause_s=30), False), (Behaviour(head_pause_s=30), True), (Behaviour(pause_s=30), True)],
    ids=["plain", "before the first byte", "after the first byte"],
)
async def test_a_client_that_leaves_ends_the_engines_work(tmp_path: Path, how: Behaviour, stream: bool) -> None:
    async with FakeUpstream(how) as engine, gateway(tmp_path, table(renamed(engine))) as gw:
        reader, writer = await asyncio.open_connection(gw.host, gw.port)
        writer.write(render_request(CHAT, chat(stream=stream)))
        if stream and not how.head_pause_s:
            await reader.readuntil(b"w0")
        async with asyncio.timeout(SOON_S):
            await engine.wait_for(lambda: engine.open == 1)
        writer.close()
        async with asyncio.timeout(1.0 + MOMENT_S):
            await engine.wait_for(lambda: engine.abandoned == 1 and engine.open == 0)


async def test_a_stream_that_breaks_ends_with_an_error_event_and_never_with_done(tmp_path: Path) -> None:
    async with FakeUpstream(Behaviour(break_after=2)) as engine, gateway(tmp_path, table(renamed(engine))) as gw:
        reader, writer = await asyncio.open_connection(gw.host, gw.port)
        writer.write(render_request(CHAT, chat(stream=True)))
        data = await reader.read()
        writer.close()
    assert b"upstream_broken" in data and b"[DONE]" not in data
    assert not data.endswith(b"0\r\n\r\n"), "the end must be unclean"


async def test_a_pause_between_events_holds_no_event_back(tmp_path: Path) -> None:
    async with FakeUpstream(Behaviour(pause_s=30)) as engine, gateway(tmp_path, table(renamed(engine))) as gw:
        reader, writer = await asyncio.open_connection(gw.host, gw.port)
        writer.write(render_request(CHAT, chat(stream=True)))
        async with asyncio.timeout(20):
            event = await reader.readuntil(b"\n\n")
        writer.close()
    assert b'"model":"m"' in event


@pytest.mark.parametrize("stream", [False, True])
async def test_without_our_server_the_same_routes_answer_through_falcon(tmp_path: Path, stream: bool) -> None:
    layout = prepare_layout(tmp_path)
    async with FakeUpstream() as engine:
        routes = table(model("m", target_of(engine)))
        async with FakeDaemon(layout.daemon_socket, routes):
            app = create_app({"LLMGW_STATE": str(tmp_path)})
            async with ASGIConductor(app.app) as conductor:
                answer = await conductor.simulate_post(CHAT, body=chat(stream=stream))
                refused = await conductor.simulate_post(CHAT, body=b"nonsense")
    assert answer.status_code == 200
    assert answer.headers["x-llmgw-target"] == "t1"
    assert (b"w4 " in answer.content and answer.content.endswith(b"data: [DONE]\n\n")) is stream
    assert refused.status_code == 400 and refused.json["error"]["code"] == "invalid_json"
