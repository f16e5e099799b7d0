"""OpenAI's Responses as chat completions and back."""

import json
from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response

from gateway.errors import ApiError
from gateway.translate.failures import BadAnswer, EngineError
from gateway.translate.responses_answer import ResponseFrame, build_response
from gateway.translate.responses_request import build_chat_request, read_request
from gateway.translate.responses_stream import ResponseStream
from tests.unit.gateway.translate.test_messages_stream import BROKEN, DONE, USAGE, chunk, piece, stream_of

Json = dict[str, object]
FRAME = ResponseFrame("m", 7, {"instructions": msgspec.Raw(b'"be"'), "temperature": msgspec.Raw(b"0.5")})
HELLO: Json = {"role": "user", "content": "hi"}
TOOL: Json = {"type": "function", "name": "look", "description": "Looks.", "parameters": {"type": "object"}}
CHAT_TOOL: Json = {
    "type": "function",
    "function": {"name": "look", "parameters": {"type": "object"}, "description": "Looks."},
}
CALL: Json = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}", "id": "fc_1"}
CHAT_CALL: Json = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
THOUGHT: Json = {"type": "reasoning", "id": "rs", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}


def ask(**fields: object) -> bytes:
    return json.dumps({"model": "m", "input": "hi"} | fields).encode()


def chat_of(**fields: object) -> Json:
    chat = json.loads(build_chat_request(read_request(ask(**fields)), "engine/m"))
    assert isinstance(chat, dict)
    return chat


def said(text: str, kind: str = "input_text") -> Json:
    return {"type": kind, "text": text}


INPUTS: list[tuple[str, object, list[Json]]] = [
    ("words", "hi", [HELLO]),
    ("a message without a type", [HELLO], [HELLO]),
    ("a message of parts", [{"type": "message", "content": [said("a"), said("b")]}], [HELLO | {"content": "a\nb"}]),
    ("a developer", [{"role": "developer", "content": "be"}, HELLO], [{"role": "system", "content": "be"}, HELLO]),
    (
        "a picture",
        [{"role": "user", "content": [{"type": "input_image", "image_url": "data:x", "detail": "low"}, said("what?")]}],
        [
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": "data:x", "detail": "low"}},
                    {"type": "text", "text": "what?"},
                ],
            }
        ],
    ),
    (
        "an answer before",
        [HELLO, {"type": "message", "role": "assistant", "content": [said("yes?", "output_text")], "id": "msg"}, HELLO],
        [HELLO, {"role": "assistant", "content": "yes?"}, HELLO],
    ),
    (
        "a turn of thoughts, words and parallel calls is one message",
        [HELLO, THOUGHT, {"role": "assistant", "content": "I look."}, CALL, CALL],
        [
            HELLO,
            {
                "role": "assistant",
                "content": "I look.",
                "reasoning_content": "hm",
                "tool_calls": [CHAT_CALL, CHAT_CALL],
            },
        ],
    ),
    (
        "a call and its output",
        [HELLO, CALL, {"type": "function_call_output", "call_id": "c", "output": "seen"}],
        [
            HELLO,
            {"role": "assistant", "content": None, "tool_calls": [CHAT_CALL]},
            {"role": "tool", "tool_call_id": "c", "content": "seen"},
        ],
    ),
    ("thoughts that lead to nothing", [THOUGHT, HELLO], [HELLO]),
]  # fmt: skip


@pytest.mark.parametrize(("asked", "messages"), [row[1:] for row in INPUTS], ids=[row[0] for row in INPUTS])
def test_items_become_chat_messages(asked: object, messages: list[Json]) -> None:
    assert chat_of(input=asked)["messages"] == messages


FIELDS: list[tuple[Mapping[str, object], Mapping[str, object]]] = [
    ({"instructions": "be"}, {"messages": [{"role": "system", "content": "be"}, HELLO]}),
    ({"max_output_tokens": 5, "temperature": 0, "top_p": 1}, {"max_tokens": 5, "temperature": 0, "top_p": 1}),
    ({"stream": True}, {"stream": True, "stream_options": {"include_usage": True}}),
    (
        {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False},
        {"tools": [CHAT_TOOL], "tool_choice": "required", "parallel_tool_calls": False},
    ),
    (
        {"tools": [TOOL], "tool_choice": {"type": "function", "name": "look"}},
        {"tool_choice": {"type": "function", "function": {"name": "look"}}},
    ),
    ({"tools": [], "tool_choice": "auto"}, {"tools": None, "tool_choice": None}),
    ({"text": {"format": {"type": "text"}}}, {"response_format": None}),
    ({"text": {"format": {"type": "json_object"}}}, {"response_format": {"type": "json_object"}}),
    (
        {"text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}}},
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": True},
            }
        },
    ),
    ({"reasoning": {"effort": "low", "summary": "auto"}}, {"reasoning_effort": "low", "reasoning": None}),
    ({"store": False, "include": [], "truncation": "auto", "metadata": {}}, {"store": None, "metadata": None}),
    ({"seed": 7, "sim": {"tokens": 1}}, {"seed": 7, "sim": {"tokens": 1}}),
]


@pytest.mark.parametrize(("fields", "wanted"), FIELDS, ids=lambda value: ascii(value)[:60])
def test_fields_are_said_in_the_engines_words(fields: Mapping[str, object], wanted: Mapping[str, object]) -> None:
    chat = chat_of(**fields)
    assert {name: chat.get(name) for name in wanted} == wanted


REFUSED: list[tuple[Mapping[str, object], str]] = [
    ({"input": []}, "`input` is empty"),
    ({"input": 7}, "$.input"),
    ({"input": [{"role": "robot", "content": "x"}]}, "$.input[0].role"),
    ({"input": [{"type": "item_reference", "id": "x"}]}, "item_reference"),
    ({"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "x"}]}]}, "input_file"),
    ({"tools": [{"type": "web_search"}]}, "web_search"),
    ({"previous_response_id": "resp_1"}, "the whole conversation"),
    ({"conversation": {"id": "x"}}, "the whole conversation"),
    ({"background": True}, "background"),
    ({"max_output_tokens": "many"}, "$.max_output_tokens"),
]


@pytest.mark.parametrize(("fields", "words"), REFUSED, ids=lambda value: ascii(value)[:60])
def test_what_cannot_be_said_is_refused(fields: Mapping[str, object], words: str) -> None:
    with pytest.raises(ApiError) as caught:
        chat_of(**fields)
    assert caught.value.http_status == 400 and words in caught.value.message


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b'{"input":"\\ud800"}'], ids=ascii)
def test_a_body_that_is_none_is_a_400(body: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        build_chat_request(read_request(body), "m")
    assert caught.value.http_status == 400


def translated(data: bytes) -> bytes:
    stream = ResponseStream(FRAME)
    return stream.feed(data) + stream.finish()


def parse(data: bytes) -> list[Json]:
    events = []
    for block in data.decode().split("\n\n")[:-1]:
        name, _, payload = block.partition("\n")
        event = json.loads(payload.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return events


def test_the_events_of_a_text_are_openais() -> None:
    events = parse(translated(stream_of([{"content": "h"}, {"content": "i"}])))
    assert [str(event["type"]).removeprefix("response.") for event in events] == [
        "created", "in_progress", "output_item.added", "content_part.added", "output_text.delta", "output_text.delta",
        "output_text.done", "content_part.done", "output_item.done", "completed",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("finish", "status", "details"),
    [
        ("stop", "completed", None),
        ("tool_calls", "completed", None),
        ("length", "incomplete", {"reason": "max_output_tokens"}),
        ("content_filter", "incomplete", {"reason": "content_filter"}),
    ],
)
def test_the_end_says_whether_it_is_whole(finish: str, status: str, details: Json | None) -> None:
    last = parse(translated(stream_of([{"content": "hi"}], finish)))[-1]
    assert last["type"] == f"response.{status}"
    response = last["response"]
    assert isinstance(response, dict)
    assert (response["status"], response["incomplete_details"]) == (status, details)
    assert (response["instructions"], response["temperature"], response["tools"]) == ("be", 0.5, [])


@pytest.mark.parametrize("data", [row[1] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_an_answer_that_breaks_is_never_told_as_whole(data: bytes) -> None:
    stream = ResponseStream(FRAME)
    sent = b""
    with pytest.raises((BadAnswer, EngineError)):
        for byte in data:
            sent += stream.feed(bytes([byte]))
        sent += stream.finish()
    assert b"response.completed" not in sent and b"response.incomplete" not in sent
    parse(sent)


arguments = st.dictionaries(st.text(max_size=5), st.integers(), max_size=3).map(json.dumps)


@given(st.text(max_size=20), st.text(max_size=20), st.lists(arguments, max_size=3))
def test_a_stream_gives_what_the_whole_answer_gives(thought: str, text: str, inputs: list[str]) -> None:
    deltas: list[Json] = [{"reasoning_content": letter} for letter in thought]
    deltas += [{"content": letter} for letter in text]
    calls = []
    for number, value in enumerate(inputs):
        deltas += [piece(number, "", "f", f"c{number}"), piece(number, value[:3]), piece(number, value[3:])]
        calls.append({"id": f"c{number}", "function": {"name": "f", "arguments": value}})
    finish = "tool_calls" if inputs else "stop"
    events = parse(translated(stream_of(deltas, finish)))

    message = {"content": text, "reasoning_content": thought, "tool_calls": calls}
    answer = {"id": "chatcmpl-7", "choices": [{"message": message, "finish_reason": finish}], "usage": USAGE}
    whole = json.loads(build_response(json.dumps(answer).encode(), FRAME))
    assert events[-1]["response"] == whole
    assert [event["item"] for event in events if event["type"] == "response.output_item.done"] == whole["output"]
    Response.model_validate(whole)


@given(st.lists(st.binary(max_size=30), max_size=10))
def test_no_bytes_of_an_engine_make_it_fail_otherwise(pieces: list[bytes]) -> None:
    stream = ResponseStream(FRAME)
    try:
        sent = b"".join(stream.feed(b"data: " + data + b"\n\n") for data in pieces) + stream.finish()
        parse(sent)
    except (BadAnswer, EngineError):
        pass


def test_usage_that_is_not_counted_is_not_made_up() -> None:
    events = parse(translated(b"".join([chunk({"content": "a"}), chunk({}, "stop"), DONE])))
    response = events[-1]["response"]
    assert isinstance(response, dict) and response["usage"] is None
