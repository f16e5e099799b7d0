"""What a request is charged: by the engine's word, or by the estimate's."""

import pytest

from core.http.plan import RelayOutcome
from core.http.verdict import Ended
from gateway.ending import RequestRecord
from gateway.usage.account import Accountant
from gateway.usage.estimate import count_events

CHAT = "/v1/chat/completions"
USAGE = b'"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10}'
TOKEN = b'c0\r\ndata: {"choices":[{"delta":{"content":"w"}}]}\n\n\r\n'


def outcome(
    tail: bytes = b"", *, ended: Ended = Ended.COMPLETE, status: int | None = 200, size: int = -1, sent: bool = True
) -> RelayOutcome:
    size = len(tail) if size < 0 else size
    return RelayOutcome(ended, status, size, 0.1, 0.2, tail, None, (), None, b"", sent)


def charged(
    said: RelayOutcome, *, path: str = CHAT, stream: bool = False, size: int = 400, by: Accountant | None = None
) -> tuple[int, int, bool]:
    record = RequestRecord("id", path, 1.0, served="m", stream=stream, request_bytes=size)
    (by or Accountant()).fill(record, said)
    return record.prompt_tokens, record.completion_tokens, record.is_estimated


@pytest.mark.parametrize(
    ("name", "path", "stream", "said", "wanted"),
    [
        ("told", CHAT, False, outcome(b"{%b}" % USAGE), (7, 3, False)),
        ("told in a stream", CHAT, True, outcome(TOKEN * 4 + USAGE), (7, 3, False)),
        ("a refusal", CHAT, False, outcome(b'{"error":{}}', status=400), (0, 0, False)),
        ("a refusal with counts", CHAT, False, outcome(USAGE, status=500), (0, 0, False)),
        ("left before the head", CHAT, True, outcome(ended=Ended.CLIENT_GONE, status=None), (100, 0, True)),
        (
            "left before it was sent",
            CHAT,
            True,
            outcome(ended=Ended.CLIENT_GONE, status=None, sent=False),
            (0, 0, False),
        ),
        ("never answered", CHAT, False, outcome(ended=Ended.CONNECT_FAILED, status=None), (0, 0, False)),
        ("left after four events", CHAT, True, outcome(TOKEN * 4, ended=Ended.CLIENT_GONE), (100, 3, True)),
        ("broken after four events", CHAT, True, outcome(TOKEN * 4, ended=Ended.UPSTREAM_BROKEN), (100, 3, True)),
        ("left after all was told", CHAT, True, outcome(TOKEN + USAGE, ended=Ended.CLIENT_GONE), (7, 3, False)),
        ("an engine that never tells", CHAT, False, outcome(b"x" * 700), (100, 100, True)),
        ("a stream that never tells", CHAT, True, outcome(TOKEN * 11), (100, 10, True)),
        ("embeddings", "/v1/embeddings", False, outcome(b'"usage":{"total_tokens":5}'), (5, 0, False)),
        ("embeddings that never tell", "/v1/embeddings", False, outcome(b"[0.1]"), (100, 0, True)),
        ("a count", "/v1/messages/count_tokens", False, outcome(b'{"input_tokens":9}'), (0, 0, False)),
        (
            "Messages, cut short",
            "/v1/messages",
            True,
            outcome(b'data: "usage":{"input_tokens":9,"output_tokens":1}\n\n' + TOKEN * 6, ended=Ended.CLIENT_GONE),
            (9, 6, True),
        ),
    ],
)  # fmt: skip
def test_it_is_charged(name: str, path: str, stream: bool, said: RelayOutcome, wanted: tuple[int, int, bool]) -> None:
    assert charged(said, path=path, stream=stream) == wanted


def test_a_prompt_is_estimated_as_the_model_s_others_were() -> None:
    accountant = Accountant()
    for _ in range(3):
        charged(outcome(b"{%b}" % USAGE), size=700, by=accountant)
    gone = outcome(ended=Ended.CLIENT_GONE, status=None)
    assert charged(gone, size=1400, by=accountant) == (14, 0, True)


def test_a_picture_teaches_nothing_of_texts_and_is_not_taken_for_one() -> None:
    accountant = Accountant()
    gone = outcome(ended=Ended.CLIENT_GONE, status=None)
    assert charged(gone, size=20 << 20, by=accountant)[0] == (128 << 10) / 4
    charged(outcome(b"{%b}" % USAGE), size=1 << 20, by=accountant)
    assert charged(gone, size=400, by=accountant)[0] == 100
    assert charged(gone, size=2 << 20, by=accountant)[0] == 14


def test_a_model_whose_events_are_several_tokens_is_known_for_it() -> None:
    accountant = Accountant()
    usage = b'"usage":{"prompt_tokens":7,"completion_tokens":300,"total_tokens":307}'
    charged(outcome(TOKEN * 104 + usage), stream=True, by=accountant)
    assert charged(outcome(TOKEN * 51, ended=Ended.CLIENT_GONE), stream=True, by=accountant)[1] == 150


@pytest.mark.parametrize(
    ("tail", "size", "events"),
    [
        (b"", 0, 0.0),
        (b"data: a\n\ndata: b\n\n", 18, 2.0),
        (TOKEN * 3, len(TOKEN) * 3, 3.0),
        (TOKEN * 10, len(TOKEN) * 1000, 1000.0),
        (TOKEN[5:] + TOKEN * 5 + TOKEN[:20], len(TOKEN) * 1000, 1000.0),
        (b"x" * 100, 1 << 20, 0.0),
        (b"x\ndata: " + b"y" * 1000, 1 << 20, 1.0),
    ],
)
def test_events_are_counted_by_the_size_of_the_last(tail: bytes, size: int, events: float) -> None:
    assert count_events(tail, size) == pytest.approx(events)
