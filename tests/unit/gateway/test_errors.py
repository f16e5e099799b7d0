"""The one envelope, and the one line per request."""

import json
import shlex

import pytest

from gateway.ending import RequestRecord
from gateway.errors import ApiError, stream_error_event, unknown_model
from gateway.request_log import RequestIds, format_record


@pytest.mark.parametrize(
    ("status", "want"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "invalid_request_error"),
        (405, "invalid_request_error"),
        (413, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "server_error"),
        (502, "server_error"),
        (503, "service_unavailable"),
        (504, "server_error"),
    ],
)
def test_each_status_has_its_type(status: int, want: str) -> None:
    assert json.loads(ApiError(status, "x", "y").body()) == {"error": {"message": "y", "type": want, "code": "x"}}


@pytest.mark.parametrize("name", ["a\nb", 'q"uote', "\ud800", "€", "\x00", "m" * 5000, "%s{}\\"])
def test_an_unknown_model_is_repeated_as_valid_and_short_json(name: str) -> None:
    body = unknown_model(name).body()
    assert len(json.loads(body)["error"]["model"]) <= 201
    assert len(body) < 3000


def test_a_broken_stream_ends_with_an_error_event_and_no_done() -> None:
    event = stream_error_event("upstream_broken", "gone")
    assert event.startswith(b"data: {") and event.endswith(b"}\n\n")
    assert b"[DONE]" not in event
    assert json.loads(event[6:])["error"]["code"] == "upstream_broken"


@pytest.mark.parametrize(
    ("offered", "kept"),
    [
        (b"abc-123", True),
        (b"0af7651916cd43dd8448eb211c80319c", True),
        (b"", False),
        (b"a b", False),
        (b"a\x00", False),
        (b"x" * 128, True),
        (b"x" * 129, False),
        (b'"quoted"', False),
        ("é".encode(), False),
        (b"a\n", False),
    ],
)
def test_a_request_id_is_honoured_when_it_is_sane(offered: bytes, kept: bool) -> None:
    got = RequestIds().read_or_make(offered)
    assert (got == offered.decode("latin-1")) is kept
    assert got


def test_ids_that_we_make_are_never_the_same() -> None:
    ids, others = RequestIds(), RequestIds()
    made = [ids.read_or_make(b"") for _ in range(1000)] + [others.read_or_make(b"") for _ in range(1000)]
    assert len(set(made)) == 2000


@pytest.mark.parametrize("name", ["plain/model-1", "a b", "line\nbreak status=200", 'q"', "\x1b[31m", "é"])
def test_no_model_name_can_forge_a_second_line_or_a_field(name: str) -> None:
    line = format_record(RequestRecord("id", "/v1/x", 1.0, model=name, key=name, target=name, status=404, ended_s=1.5))
    assert line.isprintable()
    assert line.count(" status=404 ") == 1
    assert len(shlex.split(line)) == 21
