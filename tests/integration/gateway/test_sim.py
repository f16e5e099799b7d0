"""The gateway in front of simulated engines: what a real engine would see, counted by it."""

import asyncio
import json
from pathlib import Path

import pytest
from openai import APIStatusError, AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam

from core.api import RouteTarget
from tests.integration.gateway.harness import CHAT, chat, gateway, raw_request, render_request
from tests.integration.gateway.sim import KEY, Sim, sim
from tests.patience import SOON_S
from tests.unit.gateway.tables import model, table, target

HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hello"}]


def at(engine: Sim, id_: str = "t1", **changes: object) -> RouteTarget:
    return target(id_, port=engine.port, key_file=str(engine.key_file), **changes)


async def test_the_sdk_gets_the_same_words_through_the_gateway_as_from_the_engine(tmp_path: Path) -> None:
    async with sim(tmp_path / "e") as engine, gateway(tmp_path, table(model("m", at(engine), aliases=("x",)))) as gw:
        answers = []
        for url, key, name in (
            (f"http://127.0.0.1:{engine.port}/v1", KEY, "m"),
            (f"{gw.url}/v1", "anything", "m"),
            (f"{gw.url}/v1", "anything", "x"),
        ):
            async with AsyncOpenAI(base_url=url, api_key=key, max_retries=0) as client:
                plain = await client.chat.completions.create(model=name, messages=HELLO, max_tokens=8)
                stream = await client.chat.completions.create(
                    model=name, messages=HELLO, max_tokens=8, stream=True, stream_options={"include_usage": True}
                )
                events = [event async for event in stream]
                assert {event.model for event in events} == {name} == {plain.model}
                words = "".join(event.choices[0].delta.content or "" for event in events if event.choices)
                usage = [event.usage for event in events if event.usage][-1]
                answers.append((plain.choices[0].message.content, words, usage.completion_tokens))
    assert answers[0][0] and answers[0] == answers[1] == answers[2]


@pytest.mark.parametrize("name", ["m", "x"], ids=["relayed", "renamed"])
@pytest.mark.parametrize(
    ("stream", "begun"),
    [(False, False), (True, False), (True, True)],
    ids=["plain", "before the first byte", "after the first byte"],
)
@pytest.mark.parametrize("path", [CHAT, "/v1/completions"])
async def test_leaving_stops_the_engine_within_a_second(
    tmp_path: Path, name: str, stream: bool, begun: bool, path: str
) -> None:
    pace = {"firstTokenS": 0 if begun else 60, "tokensPerS": 1, "tokens": 600}
    body = chat(name, stream=stream, sim=pace, prompt="hi", max_tokens=600)
    async with sim(tmp_path / "e") as engine, gateway(tmp_path, table(model("m", at(engine), aliases=("x",)))) as gw:
        reader, writer = await asyncio.open_connection(gw.host, gw.port)
        writer.write(render_request(path, body))
        if begun:
            await reader.readuntil(b"data: ")
        await engine.wait_open()
        writer.close()
        counts = await engine.stats(closed_early=1)
    assert (counts["closedEarly"], counts["open"]) == (1, 0)


@pytest.mark.parametrize("name", ["m", "x"], ids=["relayed", "renamed"])
@pytest.mark.parametrize("fault", ["half-close", "reset", "crash"])
async def test_a_stream_that_breaks_is_seen_to_break(tmp_path: Path, name: str, fault: str) -> None:
    body = chat(name, stream=True, max_tokens=50, sim={"fault": fault, "afterTokens": 3})
    async with sim(tmp_path / "e") as engine, gateway(tmp_path, table(model("m", at(engine), aliases=("x",)))) as gw:
        reader, writer = await asyncio.open_connection(gw.host, gw.port)
        writer.write(render_request(CHAT, body))
        async with asyncio.timeout(SOON_S):
            try:
                data = await reader.read()
            except ConnectionResetError:
                data = b""
        writer.close()
    assert b"[DONE]" not in data and not data.endswith(b"0\r\n\r\n")


def words_of(stream: bytes) -> str:
    """The text of a stream's events."""
    events = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith(b"data: {")]
    return "".join(choice["delta"].get("content") or "" for event in events for choice in event["choices"])


async def test_many_streams_at_once_are_whole_and_spread_over_the_targets(tmp_path: Path) -> None:
    async with sim(tmp_path / "a", "--slots", "64") as one, sim(tmp_path / "b", "--slots", "64") as two:
        routes = table(model("m", at(one, "a"), at(two, "b")))
        async with gateway(tmp_path, routes) as gw:
            body = chat(stream=True, max_tokens=64)
            wanted = await raw_request((gw.host, gw.port), CHAT, body)
            answers = await asyncio.gather(*(raw_request((gw.host, gw.port), CHAT, body) for _ in range(100)))
        requests = [(await engine.stats())["requests"] for engine in (one, two)]
    assert {words_of(answer.body) for answer in answers} == {words_of(wanted.body)}
    assert all(answer.body.endswith(b"data: [DONE]\n\n") for answer in answers)
    assert sum(requests) == 101 and max(requests) - min(requests) <= 20


async def test_killing_one_of_two_engines_fails_no_request(tmp_path: Path) -> None:
    async with (
        sim(tmp_path / "a") as one,
        sim(tmp_path / "b") as two,
        gateway(tmp_path, table(model("m", at(one, "a"), at(two, "b")))) as gw,
    ):
        before = [await raw_request((gw.host, gw.port), CHAT, chat(max_tokens=4)) for _ in range(6)]
        one.process.kill()
        await one.process.wait()
        after = [await raw_request((gw.host, gw.port), CHAT, chat(max_tokens=4)) for _ in range(12)]
    assert {answer.headers["x-llmgw-target"] for answer in before} == {"a", "b"}
    assert {(answer.status, answer.headers["x-llmgw-target"]) for answer in after} == {(200, "b")}


async def test_the_engines_own_key_is_demanded_of_us_and_kept_from_the_client(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.key"
    wrong.write_text("not-the-key")
    async with sim(tmp_path / "e") as engine:
        routes = table(model("m", target(port=engine.port, key_file=str(wrong))))
        async with gateway(tmp_path, routes) as gw, AsyncOpenAI(base_url=f"{gw.url}/v1", api_key=KEY) as client:
            with pytest.raises(APIStatusError) as caught:
                await client.with_options(max_retries=0).chat.completions.create(model="m", messages=HELLO)
            counts = await engine.stats()
    assert caught.value.status_code == 502
    assert json.loads(caught.value.response.text)["error"]["code"] == "upstream_unauthorized"
    assert KEY not in caught.value.response.text and "not-the-key" not in caught.value.response.text
    assert counts["unauthorized"] == 1
