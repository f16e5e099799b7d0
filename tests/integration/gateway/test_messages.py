"""Anthropic's API in front of simulated engines that speak chat completions: what the official SDK reads."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from anthropic import APIStatusError, AsyncAnthropic, BadRequestError, NotFoundError
from anthropic.types import Message, MessageParam, ToolParam

from core.api import RouteTarget
from tests.integration.gateway.harness import Gateway, gateway, raw_request, render_request
from tests.integration.gateway.sim import KEY, Sim, sim
from tests.patience import SOON_S
from tests.unit.gateway.tables import key, model, table, target
from tests.unit.gateway.translate.reading import parse_events, read_stream

MESSAGES = "/v1/messages"
COUNT = "/v1/messages/count_tokens"
HELLO: list[MessageParam] = [{"role": "user", "content": "hello there"}]
TOOL: ToolParam = {"name": "look", "description": "Looks.", "input_schema": {"type": "object"}}
CALLS = [{"name": "look", "arguments": '{"at": "x"}'}, {"name": "wait"}]
PNG = "iVBORw0KGgo="


def at(engine: Sim, id_: str = "t1", **changes: object) -> RouteTarget:
    return target(id_, port=engine.port, key_file=str(engine.key_file), routes=["/v1/chat/completions"], **changes)


@asynccontextmanager
async def translating(directory: Path, *arguments: str) -> AsyncIterator[tuple[Gateway, Sim, AsyncAnthropic]]:
    """A gateway with the model `m` (also `x`) at an engine that speaks chat completions, and the SDK at it."""
    async with (
        sim(directory / "e", *arguments) as engine,
        gateway(directory, table(model("m", at(engine), aliases=("x",)))) as gw,
        AsyncAnthropic(base_url=gw.url, api_key="anything", max_retries=0) as client,
    ):
        yield gw, engine, client


async def both(client: AsyncAnthropic, **fields: object) -> tuple[Message, Message]:
    """The same request, whole and streamed."""
    asked = {"model": "m", "max_tokens": 100, "messages": HELLO} | fields
    whole = await client.messages.create(**asked)  # type: ignore[call-overload]
    async with client.messages.stream(**asked) as stream:  # type: ignore[arg-type]
        streamed = await stream.get_final_message()
    assert isinstance(whole, Message)
    return whole, Message.model_validate(streamed.model_dump(exclude={"content": {"__all__": {"parsed_output"}}}))


SCRIPTS: list[tuple[str, dict[str, object], list[tuple[str, object]], str]] = [
    ("a text", {"tokens": 3}, [("text", "w0 w1 w2 ")], "end_turn"),
    ("thoughts and a text", {"tokens": 3, "thinks": 2}, [("thinking", "w0 w1 "), ("text", "w2 ")], "end_turn"),
    (
        "parallel tool calls",
        {"tokens": 1, "calls": CALLS},
        [("text", "w0 "), ("tool_use", ("look", {"at": "x"})), ("tool_use", ("wait", {}))],
        "tool_use",
    ),
    ("a limit", {"tokens": 200}, [("text", "".join(f"w{n} " for n in range(100)))], "max_tokens"),
    ("nothing", {"tokens": 0}, [], "end_turn"),
]


@pytest.mark.parametrize(("script", "content", "reason"), [row[1:] for row in SCRIPTS], ids=[row[0] for row in SCRIPTS])
async def test_the_sdk_reads_the_same_message_whole_and_streamed(
    tmp_path: Path, script: dict[str, object], content: list[tuple[str, object]], reason: str
) -> None:
    async with translating(tmp_path) as (_, _, client):
        whole, streamed = await both(client, tools=[TOOL], extra_body={"sim": script})
    for message in (whole, streamed):
        assert [
            (block.type, getattr(block, block.type) if block.type != "tool_use" else (block.name, block.input))
            for block in message.content
        ] == content
        assert (message.stop_reason, message.model, message.role, message.type) == (reason, "m", "assistant", "message")
        assert message.usage.input_tokens == 2
        assert message.usage.output_tokens == min(int(str(script["tokens"])), 100)
    assert whole.model_dump(exclude={"id"}) == streamed.model_dump(exclude={"id"})


@pytest.mark.parametrize("name", ["m", "x"])
async def test_the_answer_names_the_model_that_was_asked_for_and_the_target(tmp_path: Path, name: str) -> None:
    async with translating(tmp_path) as (gw, _, client):
        whole, streamed = await both(client, model=name)
        body = json.dumps({"model": name, "max_tokens": 1, "messages": HELLO}).encode()
        answer = await raw_request((gw.host, gw.port), MESSAGES + "?beta=true", body, {"x-request-id": "r-1"})
    assert {whole.model, streamed.model} == {name}
    assert (answer.headers["x-llmgw-target"], answer.headers["x-request-id"]) == ("t1", "r-1")
    assert int(answer.headers["content-length"]) == len(answer.body)


async def test_a_stop_sequence_is_named(tmp_path: Path) -> None:
    async with translating(tmp_path) as (_, _, client):
        messages = await both(client, stop_sequences=["w3"])
    assert {(m.stop_reason, m.stop_sequence) for m in messages} == {("stop_sequence", "w3")}


async def test_tool_results_and_pictures_reach_the_engine(tmp_path: Path) -> None:
    conversation = [
        {"role": "user", "content": [{"type": "text", "text": "look"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "look", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "I see this"}]},
        {
            "role": "user",
            "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}],
        },
    ]
    async with translating(tmp_path) as (_, engine, client):
        whole, _ = await both(client, messages=conversation, system="be brief", tools=[TOOL])
        counted = await client.messages.count_tokens(
            model="m",
            messages=conversation,  # type: ignore[arg-type]
            system="be brief",
        )
    # Two words of system, one of question, three of result, and sixteen for the picture.
    assert whole.usage.input_tokens == counted.input_tokens == 22


async def test_counting_computes_one_token_and_no_more(tmp_path: Path) -> None:
    async with translating(tmp_path) as (_, engine, client):
        counted = await client.messages.count_tokens(model="m", messages=HELLO)
        stats = await engine.stats()
    assert (counted.input_tokens, stats["tokens"]) == (2, 1)


async def test_the_first_event_counts_the_prompt_and_the_last_counts_all(tmp_path: Path) -> None:
    async with translating(tmp_path) as (gw, _, _):
        body = json.dumps({"model": "m", "max_tokens": 3, "stream": True, "messages": HELLO}).encode()
        answer = await raw_request((gw.host, gw.port), MESSAGES, body)
    assert answer.headers["content-type"] == "text/event-stream"
    first, *_, delta, last = parse_events(answer.body)
    message, usage = first["message"], delta["usage"]
    assert isinstance(message, dict) and isinstance(usage, dict)
    assert message["usage"]["input_tokens"] > 0
    assert set(usage) == {
        "input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens",
    }  # fmt: skip
    assert last == {"type": "message_stop"}


ERRORS: list[tuple[dict[str, object], type[APIStatusError], str, str]] = [
    ({"model": "none"}, NotFoundError, "not_found_error", "unknown_model"),
    ({"messages": [{"role": "robot", "content": ""}]}, BadRequestError, "invalid_request_error", "invalid_request"),
    ({"tools": [{"type": "web_search_20250305"}]}, BadRequestError, "invalid_request_error", "unsupported_content"),
    ({"messages": [{"role": "user", "content": "x " * 5000}]}, BadRequestError, "invalid_request_error", ""),
    ({"extra_body": {"sim": {"fault": "error", "status": 429}}}, APIStatusError, "rate_limit_error", ""),
    ({"extra_body": {"sim": {"fault": "error", "status": 500}}}, APIStatusError, "api_error", ""),
    ({"extra_body": {"sim": {"fault": "reset"}}, "stream": False}, APIStatusError, "api_error", "upstream_failed"),
]


@pytest.mark.parametrize(("fields", "kind", "type_", "code"), ERRORS, ids=[ascii(row[0])[:50] for row in ERRORS])
@pytest.mark.parametrize("stream", [False, True])
async def test_the_sdk_reads_our_errors_and_the_engines(
    tmp_path: Path, fields: dict[str, object], kind: type[APIStatusError], type_: str, code: str, stream: bool
) -> None:
    asked = {"model": "m", "max_tokens": 5, "messages": HELLO, "stream": stream} | fields
    async with translating(tmp_path) as (_, _, client):
        with pytest.raises(kind) as caught:
            await client.messages.create(**asked)  # type: ignore[call-overload]
    body = caught.value.response.json()
    assert body["type"] == "error" and body["error"]["type"] == type_ and body["error"]["message"]
    assert body["error"].get("code", "") == code


async def test_every_refusal_on_these_paths_is_in_anthropics_envelope(tmp_path: Path) -> None:
    async with translating(tmp_path) as (gw, _, _):
        address = (gw.host, gw.port)
        answers = [
            await raw_request(address, path, body, headers, method)
            for path in (MESSAGES, COUNT)
            for body, headers, method in (
                (b"nonsense", {}, "POST"),
                (b"", {}, "POST"),
                (b'{"model":7}', {}, "POST"),
                (b"{}", {"content-encoding": "gzip"}, "POST"),
                (b"", {}, "GET"),
            )
        ]
    assert [answer.status for answer in answers] == [400, 400, 400, 415, 405] * 2
    assert {json.loads(answer.body)["type"] for answer in answers} == {"error"}


async def test_keys_are_taken_as_the_sdk_sends_them_and_failures_are_alike(tmp_path: Path) -> None:
    body = json.dumps({"model": "m", "max_tokens": 1, "messages": HELLO}).encode()
    async with sim(tmp_path / "e") as engine:
        routes = table(model("m", at(engine)), keys=(key("sk-right"),), allow_missing_auth=False)
        async with gateway(tmp_path, routes) as gw:
            address = (gw.host, gw.port)
            good = [
                (await raw_request(address, MESSAGES, body, headers)).status
                for headers in ({"x-api-key": "sk-right"}, {"authorization": "Bearer sk-right"})
            ]
            bad = [
                await raw_request(address, MESSAGES, body, headers)
                for headers in ({}, {"x-api-key": "sk-wrong"}, {"authorization": "Bearer x"}, {"x-api-key": ""})
            ]
    assert good == [200, 200]
    assert {(answer.status, answer.body) for answer in bad} == {(401, bad[0].body)}
    assert json.loads(bad[0].body)["error"]["type"] == "authentication_error"


@pytest.mark.parametrize("fault", ["half-close", "reset", "crash", "garbage"])
@pytest.mark.parametrize("script", [{}, {"thinks": 50}], ids=["in a text", "in a thought"])
async def test_a_stream_that_breaks_ends_with_an_error_and_without_message_stop(
    tmp_path: Path, fault: str, script: dict[str, object]
) -> None:
    how = {"fault": fault, "afterTokens": 3, "tokens": 50} | script
    body = json.dumps({"model": "m", "max_tokens": 50, "messages": HELLO, "stream": True, "sim": how}).encode()
    async with translating(tmp_path) as (gw, _, _):
        reader, writer = await asyncio.open_connection(gw.host, gw.port)
        writer.write(render_request(MESSAGES, body))
        async with asyncio.timeout(SOON_S):
            data = await reader.read()
        writer.close()
    assert b"event: error" in data and b"upstream_broken" in data
    assert b"message_stop" not in data and b"message_delta" not in data
    assert not data.endswith(b"0\r\n\r\n"), "the end must be unclean"


@pytest.mark.parametrize(
    ("path", "stream", "begun"),
    [(MESSAGES, False, False), (MESSAGES, True, False), (MESSAGES, True, True), (COUNT, False, False)],
)
async def test_leaving_stops_the_engine_within_a_second(tmp_path: Path, path: str, stream: bool, begun: bool) -> None:
    pace = {"firstTokenS": 0 if begun else 60, "tokensPerS": 1, "tokens": 600}
    body = json.dumps({"model": "m", "max_tokens": 600, "messages": HELLO, "stream": stream, "sim": pace}).encode()
    async with translating(tmp_path) as (gw, engine, _):
        reader, writer = await asyncio.open_connection(gw.host, gw.port)
        writer.write(render_request(path, body))
        if begun:
            await reader.readuntil(b"text_delta")
        await engine.wait_open()
        writer.close()
        counts = await engine.stats(closed_early=1)
    assert (counts["closedEarly"], counts["open"]) == (1, 0)


async def test_killing_one_of_two_engines_fails_no_request(tmp_path: Path) -> None:
    body = json.dumps({"model": "m", "max_tokens": 4, "messages": HELLO}).encode()
    async with (
        sim(tmp_path / "a") as one,
        sim(tmp_path / "b") as two,
        gateway(tmp_path, table(model("m", at(one, "a"), at(two, "b")))) as gw,
    ):
        one.process.kill()
        await one.process.wait()
        answers = [await raw_request((gw.host, gw.port), MESSAGES, body) for _ in range(6)]
    assert {(answer.status, answer.headers["x-llmgw-target"]) for answer in answers} == {(200, "b")}


async def test_the_engines_key_is_not_the_clients_affair(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.key"
    wrong.write_text("not-the-key")
    async with sim(tmp_path / "e") as engine:
        routes = table(model("m", target(port=engine.port, key_file=str(wrong))))
        async with gateway(tmp_path, routes) as gw:
            body = json.dumps({"model": "m", "max_tokens": 1, "messages": HELLO}).encode()
            answer = await raw_request((gw.host, gw.port), MESSAGES, body, {"x-api-key": KEY})
    assert (answer.status, answer.error["type"]) == (502, "api_error")
    assert KEY.encode() not in answer.body and b"not-the-key" not in answer.body


async def test_many_streams_at_once_are_each_whole(tmp_path: Path) -> None:
    script = {"tokens": 40, "thinks": 5, "calls": CALLS}
    body = json.dumps({"model": "m", "max_tokens": 64, "messages": HELLO, "stream": True, "sim": script}).encode()
    async with translating(tmp_path, "--slots", "64") as (gw, _, _):
        answers = await asyncio.gather(*(raw_request((gw.host, gw.port), MESSAGES, body) for _ in range(60)))
    read = [read_stream(answer.body) for answer in answers]
    assert all(message.is_whole for message in read)
    assert {json.dumps(message.blocks) for message in read} == {json.dumps(read[0].blocks)}
