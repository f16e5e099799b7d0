"""Where each engine says what an answer cost, and what is not believed."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.usage.told import NOTHING, Told, find_told

CHAT = (
    b'{"choices":[{"index":0,"message":{"role":"assistant","content":"\\"usage\\":{\\"prompt_tokens\\":999}"},'
    b'"finish_reason":"stop"}],"usage":{"completion_tokens":15,"prompt_tokens":24,"total_tokens":39,'
    b'"prompt_tokens_details":{"cached_tokens":4}},"id":"c","timings":{"cache_n":4,"prompt_n":20,"predicted_n":15}}'
)
LLAMACPP_STREAM = (
    b'1d2\r\ndata: {"choices":[{"finish_reason":"stop","index":0,"delta":{}}],"timings":{"cache_n":23,"prompt_n":1,'
    b'"prompt_ms":2.288,"predicted_n":15,"predicted_per_second":465.9}}\n\n\r\ne\r\ndata: [DONE]\n\n\r\n0\r\n\r\n'
)
OPENAI_STREAM = (
    b'f0\r\ndata: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10,'
    b'"prompt_tokens_details":null}}\n\n\r\ne\r\ndata: [DONE]\n\n\r\n0\r\n\r\n'
)
MESSAGE_START = (
    b'212\r\nevent: message_start\ndata: {"type":"message_start","message":{"usage":{"cache_read_input_tokens":23,'
    b'"input_tokens":1,"output_tokens":0}}}\n\n\r\n'
)
MESSAGE_DELTA = (
    b'106\r\nevent: message_delta\ndata: {"type":"message_delta","usage":{"output_tokens":15}}\n\n'
    b'event: message_stop\ndata: {"type":"message_stop"}\n\n\r\n0\r\n\r\n'
)
RESPONSE = (
    b'data: {"type":"response.completed","response":{"usage":{"input_tokens":9,"input_tokens_details":'
    b'{"cached_tokens":2},"output_tokens":4,"output_tokens_details":{"reasoning_tokens":1},"total_tokens":13}}}\n\n'
)


MESSAGE = Told(4, 3, 5)
CACHED = b'{"usage":{"prompt_tokens":1,"prompt_tokens_details":{"cached_tokens":9}}}'


@pytest.mark.parametrize(
    ("name", "begin", "tail", "told"),
    [
        ("a chat", b"", CHAT, Told(24, 4, 15, True)),
        ("a stream that was asked", b"", OPENAI_STREAM, Told(7, 0, 3, True)),
        ("llama.cpp's stream, unasked", b"", LLAMACPP_STREAM, Told(24, 23, 15, True)),
        ("a short stream of Messages", b"", MESSAGE_START + MESSAGE_DELTA, Told(24, 23, 15)),
        ("a long stream of Messages", MESSAGE_START, MESSAGE_DELTA, Told(24, 23, 15)),
        ("Messages, cut short", MESSAGE_START, b"data: {}\n\n", Told(24, 23, 0)),
        ("a Message", b"", b'{"usage":{"cache_read_input_tokens":3,"input_tokens":1,"output_tokens":5}}', MESSAGE),
        (
            "a Message that filled the cache",
            b"",
            b'{"usage":{"cache_creation_input_tokens":9,"cache_read_input_tokens":0,"input_tokens":1,"output_tokens":5}}',
            Told(10, 0, 5),
        ),
        ("a Response", b"", RESPONSE, Told(9, 2, 4, True)),
        ("embeddings", b"", b'{"data":[],"usage":{"prompt_tokens":10,"total_tokens":10}}', Told(10, 0, None, True)),
        ("llama.cpp's embeddings", b'{"usage":{"prompt_tokens":10,"total_tokens":10},"data":[', b"0.1]}", Told(10)),
        ("a ranking", b"", b'{"usage":{"total_tokens":56},"results":[]}', Told(56, 0, None, True)),
        ("blanks", b"", b'{ "usage" : { "prompt_tokens" : 1 , "completion_tokens" : 2 } }', Told(1, 0, 2)),
        ("null", b"", b'{"usage":null}', NOTHING),
        ("nothing", b"", b"", NOTHING),
        ("cut off", b"", b'{"usage":{"prompt_tokens":1', NOTHING),
        ("less than none", b"", b'{"usage":{"prompt_tokens":-1,"completion_tokens":2}}', NOTHING),
        ("more than there are", b"", b'{"usage":{"prompt_tokens":99999999999999999999}}', NOTHING),
        ("a text", b"", b'{"usage":{"prompt_tokens":"12"}}', NOTHING),
        ("a list", b"", b'{"usage":[{"prompt_tokens":12}]}', NOTHING),
        ("forged in a text", b"", json.dumps({"content": '"usage":{"prompt_tokens":9}'}).encode(), NOTHING),
        ("more cached than read", b"", CACHED, Told(1, 1)),
    ],
)  # fmt: skip
def test_the_counts_are_found(name: str, begin: bytes, tail: bytes, told: Told) -> None:
    assert find_told(begin, tail) == told


def test_counts_that_were_cut_into_two_chunks_are_found() -> None:
    wire = OPENAI_STREAM.replace(b'"completion_tokens"', b'"completion\r\n1a\r\n_tokens"')
    assert find_told(b"", wire) == Told(7, 0, 3, True)


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_no_bytes_break_it(begin: bytes, tail: bytes) -> None:
    for key in (b'"usage":{', b'"timings":{', b'"usage"', b'"usage":' + b"{" * 200):
        find_told(begin + key, key + tail + b"}")


def test_a_flood_of_keys_is_not_read_to_its_end() -> None:
    assert find_told(b"", b'"usage":{"prompt_tokens":1}' + b'"usage":{' * 100_000) == NOTHING
    assert find_told(b"", b'"usage":{"prompt_tokens":1,"x":[' + b"{}" * 100_000) == NOTHING


@pytest.mark.parametrize(
    "details", [b'"prompt_tokens_details":{"cached_tokens":7}', b'"x":{"y":{"z":{}},"v":{}}', b'"x":1']
)
def test_an_object_that_is_cut_off_anywhere_tells_nothing(details: bytes) -> None:
    whole = b'{"usage":{"prompt_tokens":12,%b,"completion_tokens":34,"total_tokens":46}}' % details
    told = find_told(b"", whole)
    assert (told.prompt, told.completion, told.is_total) == (12, 34, True)
    for end in range(len(whole) - 1):
        assert find_told(b"", whole[:end]) == NOTHING, whole[:end]
