"""Streams of engines from nowhere: the same events however they are cut, and a broken one ends as a broken one."""

import time
from collections.abc import Callable

import pytest

from gateway.edited import StreamEdit
from gateway.rewrite import StreamRenamer
from gateway.translate.failures import BadAnswer, EngineError
from gateway.translate.messages_stream import MessageStream
from gateway.translate.responses_answer import ResponseFrame
from gateway.translate.responses_stream import ResponseStream
from gateway.translate.sse import EventReader
from tests.fuzz.mutation import Mutator, fuzz

_CHUNK = (
    b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m",'
    b'"choices":[{"index":0,"delta":%b%b}]%b}\n\n'
)
_STREAMS = [
    _CHUNK % (b'{"role":"assistant","content":""}', b"", b"")
    + _CHUNK % (b'{"content":"a \\"model\\":\\"x\\" b"}', b',"finish_reason":null', b"")
    + b": comment\n\n"
    + _CHUNK % (b"{}", b',"finish_reason":"stop"', b',"usage":{"prompt_tokens":3,"completion_tokens":2}')
    + b"data: [DONE]\n\n",
    _CHUNK % (b'{"tool_calls":[{"index":0,"id":"t","function":{"name":"f","arguments":"{"}}]}', b"", b"")
    + _CHUNK % (b'{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]}', b',"finish_reason":"tool_calls"', b"")
    + b"data: [DONE]\r\n\r\n",
    _CHUNK % (b'{"reasoning_content":"hm"}', b"", b"") + b'data: {"error":{"message":"out of memory"}}\n\n',
]
_WORDS = [
    b"data: ", b"data:", b"event: error\n", b"\n\n", b"\r\n\r\n", b"[DONE]", b'"model":"y"', b'"index":7',
    b'"index":-1', b"{", b"}", b"null",
    b'"tool_calls":[', b'"finish_reason":"length"', b"\\ud800", b": ping\n\n", b"[" * 2000,
]  # fmt: skip

_EDITS: dict[str, Callable[[], StreamEdit]] = {
    "messages": lambda: MessageStream("m", ["stop"], prompt=3),
    "responses": lambda: ResponseStream(ResponseFrame("m", 1, {})),
    "renamed": lambda: StreamRenamer("other"),
}


def _run(edit: StreamEdit, pieces: list[bytes]) -> tuple[bytes, str]:
    """What is sent on, and how it ended."""
    sent = b""
    try:
        for piece in pieces:
            sent += edit.feed(piece)
        return sent + edit.finish(), ""
    except (BadAnswer, EngineError) as error:
        return sent, type(error).__name__


@pytest.mark.parametrize("name", _EDITS)
def test_an_edited_stream_does_not_depend_on_how_it_is_cut(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1.0)

    def check(data: bytes, mutator: Mutator) -> None:
        sent, ended = _run(_EDITS[name](), [data])
        in_pieces, ended_in_pieces = _run(_EDITS[name](), mutator.cuts(data))
        assert ended_in_pieces == ended
        # What stood before the fault may have been sent or not; where there is none, all was.
        assert in_pieces == sent if not ended else in_pieces.startswith(sent) or sent.startswith(in_pieces)

    fuzz(name, _STREAMS, _WORDS, check)


def test_events_are_the_same_however_they_are_cut() -> None:
    def read(pieces: list[bytes]) -> list[bytes | None] | None:
        reader = EventReader()
        found: list[bytes | None] = []
        try:
            for piece in pieces:
                found += reader.feed(piece)
        except BadAnswer:
            return None
        return found

    def check(data: bytes, mutator: Mutator) -> None:
        assert read([data]) == read(mutator.cuts(data))

    fuzz("events", _STREAMS, _WORDS, check)
