"""OpenAI's Responses in front of simulated engines that speak chat completions: what the official SDK reads."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from openai import APIStatusError, AsyncOpenAI, BadRequestError, NotFoundError
from openai.types.responses import Response

from tests.integration.gateway.harness import Gateway, gateway, raw_request, render_request
from tests.integration.gateway.sim import Sim, sim
from tests.patience import SOON_S
from tests.unit.gateway.tables import model, table, target

RESPONSES = "/v1/responses"
TOOL = {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": False}
CALLS = [{"name": "look", "arguments": '{"at": "x"}'}, {"name": "wait"}]


@asynccontextmanager
async def translating(directory: Path) -> AsyncIterator[tuple[Gateway, Sim, AsyncOpenAI]]:
    async with sim(directory / "e") as engine:
        there = target(port=engine.port, key_file=str(engine.key_file), routes=["/v1/chat/completions"])
        async with (
            gateway(directory, table(model("m", there, aliases=("x",)))) as gw,
            AsyncOpenAI(base_url=f"{gw.url}/v1", api_key="anything", max_retries=0) as client,
        ):
            yield gw, engine, client


async def both(client: AsyncOpenAI, **fields: object) -> tuple[Response, Response]:
    """The same request, whole and streamed: the streamed one as its last event has it."""
    asked = {"model": "m", "input": "hello there"} | fields
    whole = await client.responses.create(**asked)  # type: ignore[call-overload]
    async with client.responses.stream(**asked) as stream:  # type: ignore[call-overload]
        events = [event async for event in stream]
    assert isinstance(whole, Response)
    return whole, Response.model_validate(events[-1].response.model_dump())


SCRIPTS: list[tuple[str, dict[str, object], list[tuple[str, object]], str]] = [
    ("a text", {"tokens": 3}, [("message", "w0 w1 w2 ")], "completed"),
    ("thoughts and a text", {"tokens": 3, "thinks": 2}, [("reasoning", "w0 w1 "), ("message", "w2 ")], "completed"),
    (
        "parallel tool calls",
        {"tokens": 1, "calls": CALLS},
        [("message", "w0 "), ("function_call", ("look", '{"at": "x"}')), ("function_call", ("wait", "{}"))],
        "completed",
    ),
    ("a limit", {"tokens": 200}, [("message", "".join(f"w{n} " for n in range(50)))], "incomplete"),
    ("nothing", {"tokens": 0}, [], "completed"),
]


@pytest.mark.parametrize("name", ["m", "x"])
@pytest.mark.parametrize(("script", "content", "status"), [row[1:] for row in SCRIPTS], ids=[row[0] for row in SCRIPTS])
async def test_the_sdk_reads_the_same_response_whole_and_streamed(
    tmp_path: Path, name: str, script: dict[str, object], content: list[tuple[str, object]], status: str
) -> None:
    async with translating(tmp_path) as (_, _, client):
        whole, streamed = await both(client, model=name, max_output_tokens=50, tools=[TOOL], extra_body={"sim": script})
    for response in (whole, streamed):
        found: list[tuple[str, object]] = []
        for item in response.output:
            if item.type == "function_call":
                found.append((item.type, (item.name, item.arguments)))
            else:
                assert item.type in ("message", "reasoning") and item.content
                found.append((item.type, "".join(getattr(part, "text", "") for part in item.content)))
        assert found == content
        assert (response.status, response.model) == (status, name)
        assert response.usage is not None and response.usage.input_tokens == 2
        assert response.usage.output_tokens == min(int(str(script["tokens"])), 50)
        assert response.max_output_tokens == 50 and [tool.type for tool in response.tools] == ["function"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fields", "kind", "code"),
    [
        ({"model": "none"}, NotFoundError, "unknown_model"),
        ({"previous_response_id": "resp_1"}, BadRequestError, "unsupported_content"),
        ({"input": "x " * 5000}, BadRequestError, 400),
        ({"extra_body": {"sim": {"fault": "error", "status": 429}}}, APIStatusError, 429),
    ],
)
async def test_the_sdk_reads_our_errors_and_the_engines(
    tmp_path: Path, fields: dict[str, object], kind: type[APIStatusError], code: object, stream: bool
) -> None:
    asked = {"model": "m", "input": "hi", "stream": stream} | fields
    async with translating(tmp_path) as (_, _, client):
        with pytest.raises(kind) as caught:
            await client.responses.create(**asked)  # type: ignore[call-overload]
    assert caught.value.response.json()["error"]["code"] == code


@pytest.mark.parametrize("fault", ["half-close", "reset", "crash", "garbage"])
async def test_a_stream_that_breaks_ends_with_an_error_and_is_never_completed(tmp_path: Path, fault: str) -> None:
    how = {"fault": fault, "afterTokens": 3, "tokens": 50}
    body = json.dumps({"model": "m", "input": "hi", "stream": True, "sim": how}).encode()
    async with translating(tmp_path) as (gw, _, _):
        reader, writer = await asyncio.open_connection(gw.host, gw.port)
        writer.write(render_request(RESPONSES, body))
        async with asyncio.timeout(SOON_S):
            data = await reader.read()
        writer.close()
    assert b"event: error" in data and b"upstream_broken" in data and b"response.completed" not in data
    assert not data.endswith(b"0\r\n\r\n"), "the end must be unclean"


@pytest.mark.parametrize(("stream", "begun"), [(False, False), (True, False), (True, True)])
async def test_leaving_stops_the_engine_within_a_second(tmp_path: Path, stream: bool, begun: bool) -> None:
    pace = {"firstTokenS": 0 if begun else 60, "tokensPerS": 1, "tokens": 600}
    body = json.dumps({"model": "m", "input": "hi", "stream": stream, "sim": pace}).encode()
    async with translating(tmp_path) as (gw, engine, _):
        reader, writer = await asyncio.open_connection(gw.host, gw.port)
        writer.write(render_request(RESPONSES, body))
        if begun:
            await reader.readuntil(b"output_text.delta")
        await engine.wait_open()
        writer.close()
        counts = await engine.stats(closed_early=1)
    assert (counts["closedEarly"], counts["open"]) == (1, 0)


async def test_an_engine_that_speaks_it_is_asked_in_its_own_words(tmp_path: Path) -> None:
    async with sim(tmp_path / "e") as engine:
        there = target(port=engine.port, key_file=str(engine.key_file), routes=[RESPONSES])
        async with gateway(tmp_path, table(model("m", there))) as gw:
            answer = await raw_request((gw.host, gw.port), RESPONSES, b'{"model":"m","input":"hi"}')
    assert answer.status == 404, "the simulated engine does not, and says so itself"
