"""A streamed chat completion as a streamed Message: the rules of its events, and the same result as a whole one."""

import json
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.translate.failures import BadAnswer, EngineError
from gateway.translate.messages_answer import build_message
from gateway.translate.messages_stream import MessageStream
from tests.unit.gateway.translate.reading import parse_events, read_stream

Json = dict[str, object]
USAGE: Json = {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}
DONE = b"data: [DONE]\n\n"
ROLE: Json = {"role": "assistant", "content": None}


def chunk(delta: Json | None, finish: str | None = None, usage: Json | None = None, **fields: object) -> bytes:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish} | fields]
    return b"data: " + json.dumps({"id": "chatcmpl-7", "choices": choices, "usage": usage}).encode() + b"\n\n"


def stream_of(deltas: Iterable[Json], finish: str = "stop", **fields: object) -> bytes:
    pieces = [chunk(delta) for delta in deltas]
    return b"".join([chunk(ROLE), *pieces, chunk({}, finish, None, **fields), chunk(None, usage=USAGE), DONE])


def translated(data: bytes, cuts: Sequence[int] = ()) -> bytes:
    stream = MessageStream("m", ["END"], prompt=100)
    edges = [0, *sorted(cuts), len(data)]
    return b"".join(stream.feed(data[a:b]) for a, b in zip(edges, edges[1:], strict=False)) + stream.finish()


def piece(index: int, arguments: str, name: str | None = None, id_: str | None = None) -> Json:
    function = {"arguments": arguments} | ({} if name is None else {"name": name})
    return {"tool_calls": [{"index": index, "function": function} | ({} if id_ is None else {"id": id_})]}


TEXT: Json = {"type": "text", "text": "hi"}
THOUGHT: Json = {"type": "thinking", "thinking": "hm", "signature": ""}


def use(number: int, value: Json) -> Json:
    return {"type": "tool_use", "id": f"c{number}", "name": f"f{number}", "input": value}


STREAMS: list[tuple[str, list[Json], list[Json]]] = [
    ("nothing", [], []),
    ("a text in pieces", [{"content": "h"}, {"content": "i"}], [TEXT]),
    ("empty pieces", [{"content": ""}, {"content": "hi"}, {"content": ""}], [TEXT]),
    ("thoughts before it", [{"reasoning_content": "h"}, {"reasoning": "m"}, {"content": "hi"}], [THOUGHT, TEXT]),
    (
        "thoughts between",
        [{"reasoning_content": "hm"}, {"content": "hi"}, {"reasoning_content": "hm"}, {"content": "hi"}],
        [THOUGHT, TEXT, THOUGHT, TEXT],
    ),
    ("both in one piece", [{"reasoning_content": "hm", "content": "hi"}], [THOUGHT, TEXT]),
    (
        "a call in pieces after a text",
        [{"content": "hi"}, piece(0, "", "f0", "c0"), piece(0, '{"a"'), piece(0, ": 1}")],
        [TEXT, use(0, {"a": 1})],
    ),
    (
        "one call after the other",
        [piece(0, '{"a":', "f0", "c0"), piece(0, "1}"), piece(1, "", "f1", "c1"), piece(1, '{"b":2}')],
        [use(0, {"a": 1}), use(1, {"b": 2})],
    ),
    (
        "calls mixed piece by piece",
        [
            piece(0, "", "f0", "c0"),
            piece(1, "", "f1", "c1"),
            piece(0, '{"a":'),
            piece(1, '{"b":'),
            piece(0, "1}"),
            piece(1, "2}"),
        ],
        [use(0, {"a": 1}), use(1, {"b": 2})],
    ),
    ("whole calls", [piece(0, "{}", "f0", "c0"), piece(1, "{}", "f1", "c1")], [use(0, {}), use(1, {})]),
    ("a call without arguments", [piece(0, "", "f0", "c0")], [use(0, {})]),
    ("calls that are all number 0", [piece(0, "{}", "f0", "c0"), piece(0, "{}", "f1", "c1")], [use(0, {}), use(1, {})]),
    ("a call that names itself again", [piece(0, '{"a":', "f0", "c0"), piece(0, "1}", "f0", "c0")], [use(0, {"a": 1})]),
    (
        "blanks after a call that was whole",
        [piece(0, "{}", "f0", "c0"), {"content": "hi"}, piece(0, " ")],
        [use(0, {}), TEXT],
    ),
    ("a call without an id", [piece(0, "{}", "f0")], [use(0, {}) | {"id": "toolu_7_0"}]),
    ("a name that comes late", [piece(0, "", None, "c0"), piece(0, "{}", "f0")], [use(0, {})]),
    (
        "a text in the middle of a call",
        [piece(0, '{"a":', "f0", "c0"), {"content": "hi"}, piece(0, "1}")],
        [use(0, {"a": 1}), TEXT],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("deltas", "blocks"), [row[1:] for row in STREAMS], ids=[row[0] for row in STREAMS])
def test_pieces_become_blocks_one_at_a_time(deltas: list[Json], blocks: list[Json]) -> None:
    message = read_stream(translated(stream_of(deltas)))
    assert message.blocks == blocks and message.is_whole
    has_call = any(block["type"] == "tool_use" for block in blocks)
    assert message.stop_reason == ("tool_use" if has_call else "end_turn")


def test_what_is_said_to_the_open_block_goes_out_at_once() -> None:
    stream = MessageStream("m", [], prompt=1)
    stream.feed(chunk(ROLE) + chunk(piece(0, "", "f0", "c0")))
    assert b"partial_json" in stream.feed(chunk(piece(0, '{"a":')))
    assert b"partial_json" in stream.feed(chunk(piece(0, "1}")))
    assert b'"index":1' in stream.feed(chunk(piece(1, '{"b":', "f1", "c1")))


ENDINGS: list[tuple[str, dict[str, str | int], str, str | None]] = [
    ("stop", {}, "end_turn", None),
    ("length", {}, "max_tokens", None),
    ("content_filter", {}, "refusal", None),
    ("stop", {"stop_reason": "END"}, "stop_sequence", "END"),
    ("stop", {"matched_stop": "END"}, "stop_sequence", "END"),
    ("stop", {"stop_reason": 2}, "end_turn", None),
]


@pytest.mark.parametrize(("finish", "fields", "reason", "sequence"), ENDINGS)
def test_the_end_is_told_once_with_its_reason(finish: str, fields: Json, reason: str, sequence: str | None) -> None:
    data = translated(stream_of([{"content": "hi"}], finish, **fields))
    message = read_stream(data)
    assert (message.stop_reason, message.stop_sequence) == (reason, sequence)
    assert data.count(b"event: message_delta") == data.count(b"event: message_stop") == 1
    assert data.count(b'"stop_reason":null') == 1, "in message_start, and nowhere else"


@pytest.mark.parametrize("first", [None, {"prompt_tokens": 9, "completion_tokens": 0}], ids=["late", "from the first"])
def test_usage_is_never_zero_at_the_start_and_whole_at_the_end(first: Json | None) -> None:
    events = parse_events(translated(chunk(ROLE, usage=first) + stream_of([{"content": "hi"}])))
    start, end = events[0]["message"], events[-2]["usage"]
    assert isinstance(start, dict)
    assert start["usage"]["input_tokens"] == (9 if first else 100)
    assert end == {
        "input_tokens": 5,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 4,
        "output_tokens": 3,
    }


def test_an_engine_that_does_not_count_is_counted_for() -> None:
    data = b"".join([chunk({"content": "a"}), chunk({"content": "b"}), chunk({}, "stop"), DONE])
    usage = read_stream(translated(data)).usage
    assert (usage["input_tokens"], usage["output_tokens"]) == (100, 3)


BROKEN: list[tuple[str, bytes]] = [
    ("cut before anything", b""),
    ("cut after the role", chunk(ROLE)),
    ("cut in a text", chunk({"content": "hi"})),
    ("cut in a call", chunk(piece(0, '{"a":', "f", "c"))),
    ("cut in an event", chunk({"content": "hi"}) + b'data: {"choices"'),
    ("done without a reason", chunk({"content": "hi"}) + DONE),
    ("done and nothing else", DONE),
    ("garbage", chunk({"content": "hi"}) + b'data: {"choices": [\n\n' + DONE),
    ("not an object", b"data: 7\n\n" + DONE),
    ("an error", chunk({"content": "hi"}) + b'data: {"error": {"message": "out of memory"}}\n\n' + DONE),
    ("an error in words", b'data: {"error": "out of memory"}\n\n' + DONE),
    ("more of a call that was over", chunk(piece(0, "{}", "f", "c")) + chunk({"content": "x"}) + chunk(piece(0, "{}"))),
]


@pytest.mark.parametrize("data", [row[1] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_an_answer_that_breaks_is_never_told_as_whole(data: bytes) -> None:
    stream = MessageStream("m", [], prompt=1)
    sent = b""
    with pytest.raises((BadAnswer, EngineError)):
        for byte in data:
            sent += stream.feed(bytes([byte]))
        sent += stream.finish()
    assert b"message_stop" not in sent and b"message_delta" not in sent
    read_stream(sent)


def test_an_end_without_done_is_an_end_when_it_has_its_reason() -> None:
    data = chunk({"content": "hi"}) + chunk({}, "stop")
    assert read_stream(translated(data)).is_whole


def test_a_keep_alive_comment_becomes_a_ping_once_there_is_a_message() -> None:
    stream = MessageStream("m", [], prompt=1)
    assert stream.feed(b": keep-alive\n\n") == b""
    stream.feed(chunk(ROLE))
    assert [event["type"] for event in parse_events(stream.feed(b": keep-alive\n\n"))] == ["ping"]


@pytest.mark.parametrize("end", [b"\r\n", b"\n"])
def test_lines_may_end_as_they_like_and_other_fields_are_ignored(end: bytes) -> None:
    data = b"event: x\nid: 1\nretry: 5\n" + stream_of([{"content": "hi"}])
    assert read_stream(translated(data.replace(b"\n", end))).blocks == [TEXT]


arguments = st.dictionaries(st.text(max_size=5), st.one_of(st.integers(), st.text(max_size=5)), max_size=3)
calls = st.lists(arguments, max_size=3)
sayings = st.tuples(st.text(max_size=20), st.text(max_size=20), calls)


@given(sayings, st.data())
def test_a_stream_however_cut_and_mixed_gives_what_the_whole_answer_gives(
    saying: tuple[str, str, list[Json]], data: st.DataObject
) -> None:
    thought, text, inputs = saying
    whole_calls = [
        {"id": f"c{number}", "function": {"name": f"f{number}", "arguments": json.dumps(value)}}
        for number, value in enumerate(inputs)
    ]
    deltas: list[Json] = [{"reasoning_content": part} for part in _cut(thought, data)]
    deltas += [{"content": part} for part in _cut(text, data)]
    deltas += _mixed(inputs, data)
    finish = "tool_calls" if inputs else "stop"
    stream = stream_of(deltas, finish)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=8))
    streamed = read_stream(translated(stream, cuts))

    message = {"content": text, "reasoning_content": thought, "tool_calls": whole_calls}
    answer = {"id": "chatcmpl-7", "choices": [{"message": message, "finish_reason": finish}], "usage": USAGE}
    whole = json.loads(build_message(json.dumps(answer).encode(), "m", [], prompt=1))
    assert streamed.blocks == whole["content"]
    assert (streamed.stop_reason, streamed.usage) == (whole["stop_reason"], whole["usage"])


def _cut(text: str, data: st.DataObject) -> list[str]:
    at = data.draw(st.integers(0, len(text)))
    return [text[:at], text[at:]]


def _mixed(inputs: list[Json], data: st.DataObject) -> list[Json]:
    """The pieces of all calls, each call's in order, the calls' among each other in any order; each begins in turn."""
    waiting = [
        [
            piece(number, "", f"f{number}", f"c{number}"),
            *(piece(number, part) for part in _cut(json.dumps(value), data)),
        ]
        for number, value in enumerate(inputs)
    ]
    deltas = [pieces.pop(0) for pieces in waiting] if data.draw(st.booleans()) else []
    while any(waiting):
        begun = [pieces for pieces in waiting if pieces and len(pieces) < 3]
        fresh = next((pieces for pieces in waiting if len(pieces) == 3), None)
        chosen = data.draw(st.sampled_from(begun + ([fresh] if fresh else [])))
        deltas.append(chosen.pop(0))
    return deltas


@given(st.lists(st.binary(max_size=30), max_size=10))
def test_no_bytes_of_an_engine_make_it_fail_otherwise(pieces: list[bytes]) -> None:
    stream = MessageStream("m", [], prompt=1)
    sent = b""
    try:
        for data in pieces:
            sent += stream.feed(b"data: " + data + b"\n\n")
        sent += stream.finish()
    except (BadAnswer, EngineError):
        assert b"message_stop" not in sent
