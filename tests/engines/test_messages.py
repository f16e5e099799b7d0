"""Anthropic's API in front of the genuine llama-server: relayed to its own, and translated, with the same result."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from anthropic import APIStatusError, AsyncAnthropic, BadRequestError
from anthropic.types import Base64ImageSourceParam, Message, MessageParam, ToolParam

from core.api import RouteTarget
from engines.adapter import Build, EngineSpec
from engines.registry import get_adapter
from tests.engines.running import RunningEngine, running
from tests.engines.tiny_model import CONTEXT, SENTENCE
from tests.integration.gateway.harness import Gateway, gateway, raw_request, render_request
from tests.unit.gateway.tables import model, table, target

pytestmark = pytest.mark.engine

MESSAGES = "/v1/messages"
HELLO = [{"role": "user", "content": "hello"}]
TOOL: ToolParam = {
    "name": "get_weather",
    "description": "The weather in a city.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
        "required": ["city"],
    },
}
CALLED = [
    {"role": "user", "content": [{"type": "text", "text": "What is the weather"}, {"type": "text", "text": "there?"}]},
    {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "c1", "name": "get_weather", "input": {"city": "Paris"}},
        ],
    },
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "sun"}]},
]


def a_spec(weights: Path, id_: str, context_length: int = CONTEXT) -> EngineSpec:
    return EngineSpec("r", "llamacpp", (id_,), 0, weights=weights, context_length=context_length, max_concurrency=2)


@asynccontextmanager
async def both_ways(
    spec: EngineSpec, tmp_path: Path, build: Build
) -> AsyncIterator[tuple[RunningEngine, Gateway, AsyncAnthropic]]:
    """One engine as two models: `own` is relayed in its own dialect, `chat` is translated."""
    async with running(spec, tmp_path, build) as engine:

        def at(id_: str, routes: frozenset[str]) -> RouteTarget:
            name = spec.served_models[0] if id_ == "chat" else ""
            key = str(tmp_path / "key")
            return target(id_, port=engine.spec.port, key_file=key, routes=sorted(routes), upstream_model=name)

        own = get_adapter("llamacpp").routes
        routes = table(
            model(spec.served_models[0], at("own", own), aliases=("alias",)),
            model("chat", at("chat", frozenset({"/v1/chat/completions"}))),
        )
        async with (
            gateway(tmp_path, routes) as gw,
            AsyncAnthropic(base_url=gw.url, api_key="anything", max_retries=0) as client,
        ):
            yield engine, gw, client


async def ask(client: AsyncAnthropic, name: str, **fields: object) -> tuple[Message, Message]:
    """The same request, whole and streamed. What this SDK no longer knows goes in as extra."""
    asked = {"model": name, "max_tokens": 200, "messages": HELLO, "extra_body": {"temperature": 0}} | fields
    whole = await client.messages.create(**asked)  # type: ignore[call-overload]
    async with client.messages.stream(**asked) as stream:  # type: ignore[arg-type]
        streamed = await stream.get_final_message()
    assert isinstance(whole, Message)
    return whole, streamed


def shape(message: Message) -> dict[str, object]:
    """What must be the same however the message came; where a prompt came from (the cache or not) may differ."""
    blocks = [block.model_dump(exclude={"id", "parsed_output"}) for block in message.content]
    usage = message.usage
    return {
        "role": message.role,
        "type": message.type,
        "stop_reason": message.stop_reason,
        "blocks": [{name: value for name, value in block.items() if value is not None} for block in blocks],
        "prompt": usage.input_tokens + (usage.cache_read_input_tokens or 0),
        "answer": usage.output_tokens,
    }


REQUESTS: list[tuple[str, dict[str, object]]] = [
    ("a question", {}),
    ("a limit", {"max_tokens": 4}),
    ("a system prompt", {"system": "Be brief."}),
    ("a system prompt in blocks", {"system": [{"type": "text", "text": "Be brief."}]}),
    ("turns", {"messages": [*HELLO, {"role": "assistant", "content": "yes?"}, *HELLO]}),
    ("a text block", {"messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]}),
    ("sampling", {"extra_body": {"temperature": 0.1, "top_p": 0.9, "top_k": 5}}),
    ("metadata", {"metadata": {"user_id": "u"}}),
    ("tools", {"tools": [TOOL], "tool_choice": {"type": "auto"}}),
    ("a tool's result", {"tools": [TOOL], "messages": CALLED}),
]


@pytest.mark.parametrize("fields", [row[1] for row in REQUESTS], ids=[row[0] for row in REQUESTS])
async def test_a_request_gives_the_same_message_relayed_renamed_and_translated(
    fields: dict[str, object], llamacpp: Build, tiny_model: Path, tmp_path: Path
) -> None:
    async with both_ways(a_spec(tiny_model, "tiny"), tmp_path, llamacpp) as (_, _, client):
        answers = {name: await ask(client, name, **fields) for name in ("tiny", "alias", "chat")}
        counts = [
            await client.messages.count_tokens(
                model=name,
                messages=fields.get("messages", HELLO),  # type: ignore[arg-type]
                **{key: fields[key] for key in ("system", "tools") if key in fields},  # type: ignore[arg-type]
            )
            for name in answers
        ]
    shapes = [shape(message) for pair in answers.values() for message in pair]
    assert all(each == shapes[0] for each in shapes), shapes
    assert {name: {message.model for message in pair} for name, pair in answers.items()} == {
        name: {name} for name in answers
    }
    assert {count.input_tokens for count in counts} == {shapes[0]["prompt"]}
    if "max_tokens" not in fields:
        assert shapes[0]["blocks"] == [{"type": "text", "text": SENTENCE}]


@pytest.mark.parametrize("name", ["tiny", "alias", "chat"])
@pytest.mark.parametrize("stream", [False, True])
async def test_the_engines_refusal_reads_the_same_each_way(
    name: str, stream: bool, llamacpp: Build, tiny_model: Path, tmp_path: Path
) -> None:
    source: Base64ImageSourceParam = {"type": "base64", "media_type": "image/png", "data": "aGk="}
    picture: list[MessageParam] = [{"role": "user", "content": [{"type": "image", "source": source}]}]
    long: list[MessageParam] = [{"role": "user", "content": "word " * 3000}]
    async with both_ways(a_spec(tiny_model, "tiny", 256), tmp_path, llamacpp) as (_, _, client):
        with pytest.raises(BadRequestError) as too_long:
            await client.messages.create(model=name, max_tokens=5, messages=long, stream=stream)
        with pytest.raises(APIStatusError) as unseen:
            await client.messages.create(model=name, max_tokens=5, messages=picture, stream=stream)
    for caught, words in ((too_long, "exceeds the available context size"), (unseen, "image input is not supported")):
        error = caught.value.response.json()
        assert error["type"] == "error" and words in error["error"]["message"]
        assert caught.value.response.headers["x-request-id"]


@pytest.mark.parametrize("name", ["starter", "alias", "chat"])
@pytest.mark.parametrize(("stream", "begun"), [(True, True), (True, False), (False, False)])
async def test_a_client_that_leaves_frees_the_engines_slot(
    name: str, stream: bool, begun: bool, llamacpp: Build, starter_model: Path, tmp_path: Path
) -> None:
    story = [{"role": "user", "content": "Tell me a very long story about a river."}]
    body = {"model": name, "max_tokens": 1500, "messages": story, "stream": stream}
    async with both_ways(a_spec(starter_model, "starter"), tmp_path, llamacpp) as (engine, gw, _):
        reader, writer = await asyncio.open_connection(gw.host, gw.port)
        writer.write(render_request(MESSAGES, json.dumps(body).encode()))
        if begun:
            await reader.readuntil(b"text_delta")
        await in_log(engine, "processing task")
        writer.close()
        # A buffered answer's connection is looked at once a second by the engine itself. A task that ended by itself is
        # never cancelled.
        await in_log(engine, "cancel task")
        again = await raw_request((gw.host, gw.port), MESSAGES, json.dumps(body | {"max_tokens": 1}).encode())
    assert again.status == 200


async def in_log(engine: RunningEngine, words: str) -> None:
    """Its log tells: asking it meanwhile would hold up what is tested."""
    async with asyncio.timeout(30.0):
        while words not in engine.log.read_text():  # noqa: ASYNC110 - a file does not tell
            await asyncio.sleep(0.01)
