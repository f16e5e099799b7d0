"""The splice that asks for usage, and which events are kept from the client for it."""

import json

import pytest

from gateway.ending import RequestRecord
from gateway.usage.asking import USAGE_EVENTS, ask_for_usage, is_asked, may_be_asked
from tests.unit.gateway.tables import target


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"m","stream":true}',
        b' {\n "model" : "m", "x":{"y":[1.0,1e400]},\t"stream":true } \n',
        b'{"stream":true,"model":"m","text":"a } \\" \\u005c"}',
    ],
)
def test_a_request_keeps_its_bytes(body: bytes) -> None:
    asked = ask_for_usage(body, has_options=False)
    end = body.rindex(b"}")
    assert asked == body[:end] + b',"stream_options":{"include_usage":true}}'
    json.loads(asked)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (b"null", b'{"include_usage":true}'),
        (b"{}", b'{"include_usage":true}'),
        (b'{"include_usage":false,"x":1.50}', b'{"include_usage":true,"x":1.50}'),
        (b'{"include_usage":null}', b'{"include_usage":true}'),
    ],
)
def test_options_of_its_own_keep_their_other_members(options: bytes, wanted: bytes) -> None:
    body = b'{"stream_options":%b,"model":"m","big":12345678901234567890.10}' % options
    asked = ask_for_usage(body, has_options=True)
    assert asked == b'{"stream_options":%b,"model":"m","big":12345678901234567890.10}' % wanted


@pytest.mark.parametrize(
    ("path", "stream", "wants", "asked"),
    [
        ("/v1/chat/completions", True, False, True),
        ("/v1/completions", True, False, True),
        ("/v1/chat/completions", True, True, False),
        ("/v1/chat/completions", False, False, False),
        ("/v1/messages", True, False, False),
        ("/v1/responses", True, False, False),
    ],
)
def test_only_streams_that_would_hide_it_are_asked(path: str, stream: bool, wants: bool, asked: bool) -> None:
    record = RequestRecord("id", path, 1.0, stream=stream, wants_usage=wants)
    assert may_be_asked(record) is asked
    assert is_asked(record, target("t", usage_when_asked=True)) is asked
    assert not is_asked(record, target("t"))


@pytest.mark.parametrize(
    ("event", "unwanted"),
    [
        (b'data: {"choices":[],"usage":{"prompt_tokens":1}}\n\n', True),
        (b'data:{"usage":{"prompt_tokens":1},"choices":[]}\r\n\r\n', True),
        (b'event: x\ndata: {"choices":[],\ndata: "usage":{}}\n\n', True),
        (b'data: {"choices":[{}],"usage":{"prompt_tokens":1}}\n\n', False),
        (b'data: {"choices":[],"usage":null}\n\n', False),
        (b'data: {"choices":[]}\n\n', False),
        (b'data: {"usage":{"prompt_tokens":1}}\n\n', False),
        (b"data: [DONE]\n\n", False),
        (b'data: {"choices":[],"usage":{\n\n', False),
        (b"\n\n", False),
    ],
)
def test_an_event_is_hidden_when_all_it_has_is_usage(event: bytes, unwanted: bool) -> None:
    assert USAGE_EVENTS.is_unwanted(event) is unwanted
