"""A whole chat completion as a Message."""

import json

import pytest

from gateway.translate.failures import BadAnswer
from gateway.translate.messages_answer import build_count, build_message

Json = dict[str, object]


def a_call(number: int = 1, arguments: object = '{"a": 1}', **fields: object) -> Json:
    return {"id": f"c{number}", "type": "function", "function": {"name": "f", "arguments": arguments}} | fields


def answer(message: Json, finish: str | None = "stop", **fields: object) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant"} | message, "finish_reason": finish} | fields
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
    return json.dumps({"id": "chatcmpl-7", "model": "engine/m", "choices": [choice], "usage": usage}).encode()


def built(data: bytes) -> Json:
    message = json.loads(build_message(data, "m", ["END", "X"], prompt=100))
    assert isinstance(message, dict)
    return message


TEXT: Json = {"type": "text", "text": "hi"}
THOUGHT: Json = {"type": "thinking", "thinking": "hm", "signature": ""}


def use(number: int = 1, value: object = None) -> Json:
    return {"type": "tool_use", "id": f"c{number}", "name": "f", "input": {"a": 1} if value is None else value}


CONTENT: list[tuple[str, Json, list[Json]]] = [
    ("a text", {"content": "hi"}, [TEXT]),
    ("nothing", {"content": ""}, []),
    ("null", {"content": None}, []),
    ("thoughts as llama.cpp names them", {"content": "hi", "reasoning_content": "hm"}, [THOUGHT, TEXT]),
    ("thoughts as vLLM names them", {"content": "hi", "reasoning": "hm"}, [THOUGHT, TEXT]),
    ("a refusal", {"content": None, "refusal": "hi"}, [TEXT]),
    ("a call", {"content": None, "tool_calls": [a_call()]}, [use()]),
    ("parallel calls after a text", {"content": "hi", "tool_calls": [a_call(1), a_call(2)]}, [TEXT, use(1), use(2)]),
    ("a call without arguments", {"tool_calls": [a_call(1, "")]}, [use(1, {})]),
    ("a call with null", {"tool_calls": [a_call(1, None)]}, [use(1, {})]),
    ("a call with an object", {"tool_calls": [a_call(1, {"a": 1})]}, [use()]),
    ("a call with broken JSON", {"tool_calls": [a_call(1, '{"a":')]}, [use(1, {"INVALID_JSON": '{"a":'})]),
    ("a call with a list", {"tool_calls": [a_call(1, "[1]")]}, [use(1, {"INVALID_JSON": "[1]"})]),
    ("a large number", {"tool_calls": [a_call(1, f'{{"a": {10**20}}}')]}, [use(1, {"a": 10**20})]),
    ("a call without an id", {"tool_calls": [a_call(id=None)]}, [use() | {"id": "toolu_7_0"}]),
]  # fmt: skip


@pytest.mark.parametrize(("message", "content"), [row[1:] for row in CONTENT], ids=[row[0] for row in CONTENT])
def test_what_was_said_becomes_blocks(message: Json, content: list[Json]) -> None:
    assert built(answer(message))["content"] == content


def test_a_message_has_all_its_fields() -> None:
    assert built(answer({"content": "hi"})) == {
        "id": "msg_7",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [TEXT],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 9,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 3,
        },
    }


CALLED: Json = {"tool_calls": [a_call()]}
SAID: Json = {"content": "hi"}
ENDINGS: list[tuple[Json, str | None, Json, str, str | None]] = [
    (SAID, "stop", {}, "end_turn", None),
    (SAID, None, {}, "end_turn", None),
    (SAID, "new", {}, "end_turn", None),
    (SAID, "length", {}, "max_tokens", None),
    (SAID, "content_filter", {}, "refusal", None),
    ({"refusal": "no"}, "stop", {}, "refusal", None),
    (SAID, "stop", {"stop_reason": "END"}, "stop_sequence", "END"),
    (SAID, "stop", {"stop_reason": 151645}, "end_turn", None),
    (SAID, "stop", {"stop_reason": None}, "end_turn", None),
    (SAID, "stop", {"stop_reason": "other"}, "end_turn", None),
    (SAID, "stop", {"matched_stop": "X"}, "stop_sequence", "X"),
    (SAID, "stop", {"matched_stop": 2}, "end_turn", None),
    (CALLED, "tool_calls", {}, "tool_use", None),
    (CALLED, "function_call", {}, "tool_use", None),
    (CALLED, "stop", {}, "tool_use", None),
    (CALLED, "length", {}, "max_tokens", None),
    (SAID, "tool_calls", {}, "end_turn", None),
]


@pytest.mark.parametrize(("message", "finish", "fields", "reason", "sequence"), ENDINGS)
def test_the_reason_of_the_end_is_said_in_anthropics_words(
    message: Json, finish: str | None, fields: Json, reason: str, sequence: str | None
) -> None:
    message = built(answer(message, finish, **fields))
    assert (message["stop_reason"], message["stop_sequence"]) == (reason, sequence)


@pytest.mark.parametrize(
    ("usage", "counts"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 3}, (9, 0, 3)),
        ({"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}, (5, 4, 3)),
        ({"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": None}, (9, 0, 3)),
        ({"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": None}}, (9, 0, 3)),
        ({"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 99}}, (0, 9, 3)),
        (None, (100, 0, 0)),
    ],
)
def test_cached_tokens_are_counted_beside_the_others(usage: Json | None, counts: tuple[int, int, int]) -> None:
    data = json.loads(answer(SAID)) | {"usage": usage}
    told = built(json.dumps(data).encode())["usage"]
    assert isinstance(told, dict)
    assert (told["input_tokens"], told["cache_read_input_tokens"], told["output_tokens"]) == counts


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b"<html>", b'{"choices":[]}', b'{"choices":[{"index":0}]}', b'{"choices":1}']
)
def test_an_answer_that_is_none_is_told_from_one(data: bytes) -> None:
    with pytest.raises(BadAnswer):
        build_message(data, "m", [], prompt=1)


def test_the_count_is_of_the_whole_prompt() -> None:
    data = json.loads(answer(SAID))
    data["usage"]["prompt_tokens_details"] = {"cached_tokens": 4}
    assert json.loads(build_count(json.dumps(data).encode())) == {"input_tokens": 9}
    with pytest.raises(BadAnswer):
        build_count(json.dumps(data | {"usage": None}).encode())
