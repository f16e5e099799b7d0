"""A stream whose usage nobody asked for: the engine is asked, and the client sees what it would have seen without."""

import asyncio
import json
import re
from pathlib import Path

import pytest

from tests.fakes.upstream import FakeUpstream
from tests.integration.gateway.harness import CHAT, chat, gateway, raw_request, render_request, target_of
from tests.integration.gateway.sim import KEY, sim
from tests.integration.gateway.test_sim import at
from tests.patience import SOON_S
from tests.unit.gateway.tables import model, table

COMPLETIONS = "/v1/completions"
_OWN = re.compile(rb'"(?:id|created)":[^,]+')
"""What differs from one answer of the engine to the next."""


@pytest.mark.parametrize("lane", ["fast lane", "resource"])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("options", [None, {"include_usage": False}])
async def test_the_client_sees_the_stream_that_it_asked_for(
    tmp_path: Path, lane: str, path: str, options: dict[str, bool] | None
) -> None:
    own = {"stream_options": options} if options is not None else {}
    body = chat("m", stream=True, prompt="a b c", max_tokens=40, sim={"tokens": 40}, **own)
    async with (
        sim(tmp_path / "e") as engine,
        gateway(tmp_path, table(model("m", at(engine, usage_when_asked=True))), lane=lane) as gw,
    ):
        direct = await raw_request(("127.0.0.1", engine.port), path, body, {"authorization": f"Bearer {KEY}"})
        relayed = await raw_request((gw.host, gw.port), path, body)
    assert b"usage" not in relayed.body
    assert _OWN.sub(b"", relayed.body) == _OWN.sub(b"", direct.body)


@pytest.mark.parametrize("name", ["m", "x"], ids=["relayed", "renamed"])
async def test_who_asks_for_usage_sees_it(tmp_path: Path, name: str) -> None:
    body = chat(name, stream=True, max_tokens=4, stream_options={"include_usage": True})
    async with (
        sim(tmp_path / "e") as engine,
        gateway(tmp_path, table(model("m", at(engine, usage_when_asked=True), aliases=("x",)))) as gw,
    ):
        answer = await raw_request((gw.host, gw.port), CHAT, body)
    assert answer.body.count(b'"usage"') == 1


async def test_a_renamed_stream_hides_it_too(tmp_path: Path) -> None:
    async with sim(tmp_path / "e") as engine:
        routes = table(model("m", at(engine, usage_when_asked=True), aliases=("x",)))
        async with gateway(tmp_path, routes) as gw:
            answer = await raw_request((gw.host, gw.port), CHAT, chat("x", stream=True, max_tokens=4))
    assert answer.body.endswith(b"data: [DONE]\n\n")
    assert b"usage" not in answer.body and answer.body.count(b'"model":"x"') == 6


async def test_an_old_client_sees_it_as_little(tmp_path: Path) -> None:
    body = chat("m", stream=True, max_tokens=4)
    async with (
        sim(tmp_path / "e") as engine,
        gateway(tmp_path, table(model("m", at(engine, usage_when_asked=True)))) as gw,
    ):
        reader, writer = await asyncio.open_connection(gw.host, gw.port)
        writer.write(render_request(CHAT, body).replace(b"HTTP/1.1", b"HTTP/1.0"))
        answer = await reader.read()
        writer.close()
    assert b"\r\n\r\ndata: {" in answer and answer.endswith(b"data: [DONE]\n\n")
    assert b"usage" not in answer


@pytest.mark.parametrize("fault", ["half-close", "reset", "crash"])
async def test_a_stream_that_breaks_ends_with_an_error_and_no_end(tmp_path: Path, fault: str) -> None:
    body = chat("m", stream=True, max_tokens=50, sim={"fault": fault, "afterTokens": 3})
    async with (
        sim(tmp_path / "e") as engine,
        gateway(tmp_path, table(model("m", at(engine, usage_when_asked=True)))) as gw,
    ):
        reader, writer = await asyncio.open_connection(gw.host, gw.port)
        writer.write(render_request(CHAT, body))
        async with asyncio.timeout(SOON_S):
            answer = await reader.read()
        writer.close()
    assert b'"upstream_broken"' in answer
    assert b"[DONE]" not in answer and not answer.endswith(b"0\r\n\r\n")


@pytest.mark.parametrize("knows", [True, False])
async def test_only_an_engine_that_knows_the_field_is_asked(tmp_path: Path, knows: bool) -> None:
    async with FakeUpstream() as engine:
        routes = table(model("m", target_of(engine, usage_when_asked=knows)))
        async with gateway(tmp_path, routes) as gw:
            await raw_request((gw.host, gw.port), CHAT, chat("m", stream=True))
            await raw_request((gw.host, gw.port), CHAT, chat("m"))
    asked = [json.loads(seen.body).get("stream_options") for seen in engine.seen]
    assert asked == [{"include_usage": True} if knows else None, None]


async def test_of_two_targets_each_is_asked_what_it_knows(tmp_path: Path) -> None:
    async with FakeUpstream() as full, FakeUpstream() as other:
        full.behaviour.status = 503
        knows, knows_not = target_of(full, "t1", usage_when_asked=True), target_of(other, "t2")
        async with gateway(tmp_path, table(model("m", knows, knows_not))) as gw:
            for _ in range(2):
                assert (await raw_request((gw.host, gw.port), CHAT, chat("m", stream=True))).status == 200
    assert all("stream_options" in json.loads(seen.body) for seen in full.seen) and full.seen
    assert not any("stream_options" in json.loads(seen.body) for seen in other.seen) and other.seen
