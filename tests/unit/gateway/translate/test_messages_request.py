"""What an engine that speaks chat completions is asked for a Messages request."""

import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import ApiError
from gateway.translate.messages_request import build_chat_request, build_count_request, read_request

Json = dict[str, object]
HELLO: Json = {"role": "user", "content": "hi"}
IMAGE: Json = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
PICTURE: Json = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
CALL: Json = {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": "x", "n": 12345678901234567890}}
CALLED: Json = {"role": "assistant", "content": [CALL]}
CHAT_CALL: Json = {
    "id": "t1",
    "type": "function",
    "function": {"name": "look", "arguments": '{"at":"x","n":12345678901234567890}'},
}
TOOL: Json = {"name": "look", "description": "Looks.", "input_schema": {"type": "object", "x-own": 1}}
CHAT_TOOL: Json = {
    "type": "function",
    "function": {"name": "look", "parameters": {"type": "object", "x-own": 1}, "description": "Looks."},
}


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def result(content: object = None, **fields: object) -> Json:
    return {"type": "tool_result", "tool_use_id": "t1"} | ({} if content is None else {"content": content}) | fields


def ask(**fields: object) -> bytes:
    request = {"model": "m", "max_tokens": 9, "messages": [HELLO]} | fields
    return json.dumps(request, separators=(",", ":")).encode()


def chat_of(**fields: object) -> Json:
    chat = json.loads(build_chat_request(read_request(ask(**fields)), "engine/m"))
    assert isinstance(chat, dict)
    return chat


TURNS: list[tuple[str, list[Json], list[Json]]] = [
    ("a text", [HELLO], [HELLO]),
    ("a block of text", [{"role": "user", "content": [text("hi")]}], [HELLO]),
    (
        "cache marks and citations are no part of it",
        [{"role": "user", "content": [text("hi") | {"cache_control": {"type": "ephemeral"}, "citations": None}]}],
        [HELLO],
    ),
    (
        "an image beside a text",
        [{"role": "user", "content": [IMAGE, text("what?")]}],
        [{"role": "user", "content": [PICTURE, text("what?")]}],
    ),
    (
        "an image at a URL",
        [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "https://x/y.png"}}]}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/y.png"}}]}],
    ),
    (
        "turns of one role are one",
        [HELLO, {"role": "user", "content": "there"}],
        [{"role": "user", "content": [text("hi"), text("there")]}],
    ),
    (
        "an answer and a question after it",
        [HELLO, {"role": "assistant", "content": "yes?"}, HELLO],
        [HELLO, {"role": "assistant", "content": "yes?"}, HELLO],
    ),
    (
        "thoughts go back, what cannot be read does not",
        [
            HELLO,
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "s"},
                    {"type": "redacted_thinking", "data": "xx"},
                    text("yes"),
                ],
            },
        ],
        [HELLO, {"role": "assistant", "content": "yes", "reasoning_content": "hm"}],
    ),
    (
        "a call and its result",
        [HELLO, CALLED, {"role": "user", "content": [result("seen")]}],
        [
            HELLO,
            {"role": "assistant", "content": None, "tool_calls": [CHAT_CALL]},
            {"role": "tool", "tool_call_id": "t1", "content": "seen"},
        ],
    ),
    (
        "parallel results come before what is said beside them, their pictures after",
        [{"role": "user", "content": [result([text("a"), IMAGE, text("b")]), result(), text("go on")]}],
        [
            {"role": "tool", "tool_call_id": "t1", "content": "a\nb"},
            {"role": "tool", "tool_call_id": "t1", "content": ""},
            {"role": "user", "content": [PICTURE, text("go on")]},
        ],
    ),
    (
        "results in turns of their own",
        [{"role": "user", "content": [result("a")]}, {"role": "user", "content": [result("b")]}],
        [
            {"role": "tool", "tool_call_id": "t1", "content": "a"},
            {"role": "tool", "tool_call_id": "t1", "content": "b"},
        ],
    ),
    (
        "a failed call",
        [{"role": "user", "content": [result("no such file", is_error=True)]}],
        [{"role": "tool", "tool_call_id": "t1", "content": "Error: no such file"}],
    ),
    (
        "a failed call that says so itself",
        [{"role": "user", "content": [result("error 5", is_error=True)]}],
        [{"role": "tool", "tool_call_id": "t1", "content": "error 5"}],
    ),
    (
        "a document of plain text",
        [
            {
                "role": "user",
                "content": [
                    {
                        "type": "document",
                        "title": "T",
                        "source": {"type": "text", "media_type": "text/plain", "data": "words"},
                    }
                ],
            }
        ],
        [{"role": "user", "content": [text("T"), text("words")]}],
    ),
    (
        "a document of blocks",
        [{"role": "user", "content": [{"type": "document", "source": {"type": "content", "content": [IMAGE]}}]}],
        [{"role": "user", "content": [PICTURE]}],
    ),
    (
        "a search result",
        [
            {
                "role": "user",
                "content": [{"type": "search_result", "title": "T", "source": "https://x", "content": [text("w")]}],
            }
        ],
        [{"role": "user", "content": "T\nhttps://x\nw"}],
    ),
]


@pytest.mark.parametrize(("turns", "messages"), [row[1:] for row in TURNS], ids=[row[0] for row in TURNS])
def test_a_conversation_becomes_chat_messages(turns: list[Json], messages: list[Json]) -> None:
    assert chat_of(messages=turns)["messages"] == messages


FIELDS: list[tuple[Mapping[str, object], Mapping[str, object]]] = [
    ({}, {"max_tokens": 9}),
    ({"max_tokens": 0}, {"max_tokens": 1}),
    ({"system": "be"}, {"messages": [{"role": "system", "content": "be"}, HELLO]}),
    ({"system": [text("a"), text("b")]}, {"messages": [{"role": "system", "content": "a\nb"}, HELLO]}),
    ({"system": ""}, {"messages": [HELLO]}),
    ({"stream": True}, {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}),
    ({"stream": False}, {"stream": None}),
    (
        {"temperature": 0, "top_p": 0.5, "top_k": 3, "stop_sequences": ["x"]},
        {"temperature": 0, "top_p": 0.5, "top_k": 3, "stop": ["x"]},
    ),
    ({"stop_sequences": []}, {"stop": None}),
    ({"tools": [TOOL]}, {"tools": [CHAT_TOOL], "tool_choice": None}),
    ({"tools": [TOOL | {"type": "custom", "cache_control": None}]}, {"tools": [CHAT_TOOL]}),
    ({"tools": [], "tool_choice": {"type": "auto"}}, {"tools": None, "tool_choice": None}),
    ({"tools": [TOOL], "tool_choice": {"type": "auto"}}, {"tool_choice": "auto", "parallel_tool_calls": None}),
    ({"tools": [TOOL], "tool_choice": {"type": "any"}}, {"tool_choice": "required"}),
    ({"tools": [TOOL], "tool_choice": {"type": "none"}}, {"tool_choice": "none"}),
    (
        {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "look", "disable_parallel_tool_use": True}},
        {"tool_choice": {"type": "function", "function": {"name": "look"}}, "parallel_tool_calls": False},
    ),
    ({"thinking": {"type": "disabled"}}, {"chat_template_kwargs": {"enable_thinking": False, "thinking": False}}),
    (
        {"thinking": {"type": "enabled", "budget_tokens": 2048}},
        {"chat_template_kwargs": {"enable_thinking": True, "thinking": True}},
    ),
    ({"output_config": {"effort": "max"}}, {"reasoning_effort": "high"}),
    (
        {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}},
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "answer", "strict": True, "schema": {"type": "object"}},
            }
        },
    ),
    ({"metadata": {"user_id": "u"}}, {"user": "u", "metadata": None}),
    ({"seed": 7, "min_p": 0.1, "sim": {"tokens": 3}}, {"seed": 7, "min_p": 0.1, "sim": {"tokens": 3}}),
    (
        {"thinking": {"type": "adaptive"}, "chat_template_kwargs": {"own": 1}},
        {"chat_template_kwargs": {"own": 1}, "thinking": None},
    ),
    (
        {"service_tier": "auto", "container": "c", "context_management": {}, "n": 5, "stream_options": {}},
        {"service_tier": None, "container": None, "context_management": None, "n": None, "stream_options": None},
    ),
]


@pytest.mark.parametrize(("fields", "wanted"), FIELDS, ids=lambda value: ascii(value)[:60])
def test_fields_are_said_in_the_engines_words(fields: Mapping[str, object], wanted: Mapping[str, object]) -> None:
    chat = chat_of(**fields)
    assert {name: chat.get(name) for name in wanted} == wanted
    assert chat["model"] == "engine/m"


REFUSED: list[tuple[Mapping[str, object], str]] = [
    ({"messages": []}, "`messages` is empty"),
    ({"messages": "x"}, "$.messages"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "$.messages[0].role"),
    ({"messages": [{"role": "user", "content": [{"type": "server_tool_use"}]}]}, "$.messages[0].content[0].type"),
    ({"messages": [{"role": "user", "content": [{"text": "x"}]}]}, "$.messages[0].content[0]"),
    ({"messages": [{"role": "user", "content": [CALL]}]}, "neither thoughts nor tool calls"),
    ({"messages": [{"role": "assistant", "content": [IMAGE]}]}, "an assistant's turn"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "file", "file_id": "f"}}]}]},
        "images must be",
    ),
    (
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "document",
                            "source": {"type": "base64", "media_type": "application/pdf", "data": ""},
                        }
                    ],
                }
            ]
        },
        "documents must be plain text",
    ),
    ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "web_search_20250305"),
    ({"tools": [{"type": "bash_20250124", "name": "bash", "input_schema": {}}]}, "bash_20250124"),
    ({"tools": [{"name": "x"}]}, "without input_schema"),
    ({"mcp_servers": [{"name": "x"}]}, "MCP"),
    ({"max_tokens": "many"}, "$.max_tokens"),
    ({"tool_choice": {"type": "maybe"}, "tools": [TOOL]}, "$.tool_choice.type"),
]


@pytest.mark.parametrize(("fields", "words"), REFUSED, ids=lambda value: ascii(value)[:60])
def test_what_cannot_be_said_is_refused_with_its_place(fields: Mapping[str, object], words: str) -> None:
    with pytest.raises(ApiError) as caught:
        chat_of(**fields)
    assert caught.value.http_status == 400 and words in caught.value.message


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b"\xff",
        b"null",
        b'{"messages":' + b"[" * 100_000,
        b'{"messages":[{"role":"user","content":"\\ud800"}]}',
    ],
    ids=lambda body: ascii(body[:30]),
)
def test_a_body_that_is_none_is_a_400(body: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        build_chat_request(read_request(body), "m")
    assert caught.value.http_status == 400


def test_counting_asks_for_the_same_prompt_and_one_token() -> None:
    asked = read_request(ask(system="be", tools=[TOOL], stream=True))
    counted, chat = json.loads(build_count_request(asked, "m")), json.loads(build_chat_request(asked, "m"))
    assert counted["max_tokens"] == 1 and "stream" not in counted
    assert [counted[name] for name in ("messages", "tools")] == [chat[name] for name in ("messages", "tools")]


words = st.text(st.characters(codec="utf-8"), max_size=20)
shown = st.one_of(words.map(text), st.just(IMAGE))
users = st.lists(st.one_of(shown, st.builds(result, st.one_of(words, st.lists(shown, max_size=3)))), max_size=4)
said = st.lists(st.one_of(words.map(text), st.just(CALL)), max_size=4)
turns = st.lists(
    st.one_of(
        users.map(lambda blocks: {"role": "user", "content": blocks}),
        said.map(lambda blocks: {"role": "assistant", "content": blocks}),
    ),
    min_size=1,
    max_size=6,
)


@given(turns)
def test_no_word_picture_call_or_result_is_lost_or_told_twice(conversation: list[Json]) -> None:
    chat = json.dumps(chat_of(messages=conversation)["messages"])
    told = json.dumps(conversation)
    assert chat.count('"image_url": {') == told.count('"type": "image"')
    assert chat.count('"tool_calls"') <= chat.count('"assistant"')
    assert chat.count('"function": {') == told.count('"type": "tool_use"')
    assert chat.count('"role": "tool"') == told.count('"type": "tool_result"')
    assert list(_words(json.loads(chat), "content", "text")) == list(_words(json.loads(told), "content", "text"))


def _words(value: object, *names: str) -> list[str]:
    """All texts, in a canonical order: results move before what is said beside them."""
    found: list[str] = []
    if isinstance(value, list):
        found = [word for each in value for word in _words(each, *names)]
    elif isinstance(value, dict):
        for name in names:
            inside = value.get(name)
            found += inside.split("\n") if isinstance(inside, str) else _words(inside, *names)
    return sorted("".join(found))
