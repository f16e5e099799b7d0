"""The line that is written for a request: all that is known, on one line, whatever the client called things."""

import re

import pytest

from gateway.ending import RequestRecord
from gateway.request_log import RequestIds, format_record

PLAIN = {
    "id": "r-1", "path": "/v1/chat/completions", "model": "qwen", "status": "200", "ended": "complete",
    "target": "n1/qwen", "attempts": "2", "stream": "yes", "key": '"team a"', "why": "affinity", "estimated": "no",
    "size_bytes": "512", "queued_s": "0.250", "prompt_tokens": "12", "cached_tokens": "8", "completion_tokens": "3",
    "first_byte_s": "0.2100", "first_token_s": "0.3000", "took_s": "1.5000", "client": "10.0.0.7",
}  # fmt: skip


def make_record(**changes: object) -> RequestRecord:
    fields: dict[str, object] = {
        "model": "qwen", "status": 200, "target": "n1/qwen", "attempts": 2, "stream": True, "key": "team a",
        "why": "affinity", "size_bytes": 512, "queued_s": 0.25, "prompt_tokens": 12, "cached_tokens": 8,
        "completion_tokens": 3, "first_byte_s": 0.21, "first_data_s": 0.3, "ended_s": 101.5, "client": "10.0.0.7",
    }  # fmt: skip
    return RequestRecord("r-1", "/v1/chat/completions", 100.0, **(fields | changes))  # type: ignore[arg-type]


def read(line: str) -> dict[str, str]:
    """The facts of a line, values as they stand there."""
    found = re.findall(r'(\w+)=("(?:[^"\\]|\\.)*"|\S+)', line)
    assert " ".join(["request", *(f"{name}={value}" for name, value in found)]) == line
    return dict(found)


def test_all_that_is_known_stands_in_the_line() -> None:
    assert read(format_record(make_record())) == PLAIN


def test_what_did_not_wait_and_what_came_whole_is_said_like_all_else() -> None:
    found = read(format_record(make_record(queued_s=0.0, first_data_s=0.21)))
    assert (found["queued_s"], found["first_byte_s"], found["first_token_s"]) == ("0.000", "0.2100", "0.2100")
    assert read(format_record(make_record(first_data_s=0.0)))["first_token_s"] == "0.0000"


def test_a_refused_request_has_its_errors_code_and_no_target() -> None:
    record = make_record(status=404, ended="refused", code="unknown_model", target="", key="", client="", why="")
    found = read(format_record(record))
    assert (found["code"], found["target"], found["key"], found["client"], found["why"]) == ("unknown_model", *"----")


@pytest.mark.parametrize("name", ["a b", 'a"b', "a=b", "a\nrequest id=forged", "a\x1b[31m", "a\u2028b", "\ud800", ""])
def test_no_name_can_be_taken_for_another_fact_or_another_line(name: str) -> None:
    line = format_record(make_record(model=name))
    assert line.isprintable() and "\n" not in line
    assert set(read(line)) == set(PLAIN) and read(line)["id"] == "r-1"


@pytest.mark.parametrize(
    ("offered", "is_kept"),
    [
        (b"my-id.1:/+=@_", True),
        (b"a" * 128, True),
        (b"a" * 129, False),
        (b"", False),
        (b"a b", False),
        (b"a\nb", False),
        (b"a\n", False),
        ("ü".encode(), False),
        (b"a;b", False),
    ],
)
def test_a_clients_id_is_kept_when_it_is_sane(offered: bytes, is_kept: bool) -> None:
    ids = RequestIds()
    got = ids.read_or_make(offered)
    assert (got == offered.decode("utf-8")) is is_kept
    assert ids.read_or_make(b"") != ids.read_or_make(b"")
