"""When a silent stream is spoken to, where it may be interrupted, and what errors after its head become."""

import pytest

from core.http.patience import COMMENT, Patience, ends_between_events


class _Dialect:
    def head_lines(self) -> bytes:
        return b"x-request-id: r1\r\n"

    def refusal_event(self, status: int, body: bytes) -> bytes:
        return b"%d|%b" % (status, body)


def test_a_comment_is_due_after_so_long_without_a_byte_and_again_after_as_long() -> None:
    patience = Patience(_Dialect(), 0.0)
    asked = [(0, 0.0), (0, 12.9), (0, 13.0), (0, 25.9), (0, 26.0), (7, 40.0), (7, 52.9), (8, 53.0), (8, 66.0)]
    due = [patience.is_due(size, now, 13.0) for size, now in asked]
    assert due == [False, False, True, False, True, False, False, False, True]


BETWEEN: list[tuple[str, bytes, bool, bool, bool]] = [
    ("nothing yet", b"", True, False, True),
    ("after an event", b"a\r\ndata: {}\n\n\r\n", True, False, True),
    ("after an event with CR LF", b"c\r\ndata: {}\r\n\r\n\r\n", True, False, True),
    ("after two chunks", b"4\r\nx: \n\r\n5\r\ny: \n\n\r\n", True, False, True),
    ("with an extension", b"a;x=y\r\ndata: {}\n\n\r\n", True, False, True),
    ("between the lines of an event", b"9\r\ndata: {}\n\r\n", True, False, False),
    ("inside a chunk", b"14\r\ndata: {}\n\n", True, False, False),
    ("inside a chunk that looks like its end", b"14\r\ndata: {}\n\n\r\n", True, False, False),
    ("after a size", b"a\r\ndata: {}\n\n\r\n14\r\n", True, False, False),
    ("inside a size", b"a\r\ndata: {}\n\n\r\n1", True, False, False),
    ("the looks of an end whose begin is not known", b"ata: {}\n\n\r\n", True, True, True),
    ("the middle of what is not known", b"ata: {}\n\n", True, True, False),
    ("without chunks, after an event", b"data: {}\n\n", False, False, True),
    ("without chunks, inside one", b"data: {", False, False, False),
    ("without chunks, after a line", b"data: {}\n", False, True, False),
]


@pytest.mark.parametrize(("tail", "chunked", "is_cut", "expected"), [row[1:] for row in BETWEEN], ids=lambda x: None)
def test_a_stream_is_interrupted_between_events_only(tail: bytes, chunked: bool, is_cut: bool, expected: bool) -> None:
    assert ends_between_events(tail, chunked=chunked, is_cut=is_cut) is expected


def test_the_head_that_comes_early_promises_no_more_than_a_stream() -> None:
    patience = Patience(_Dialect(), 0.0)
    head, _, body = patience.begin(chunked=True, close=False).partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"HTTP/1.1 200 OK"
    assert lines[2:] == [
        b"content-type: text/event-stream; charset=utf-8",
        b"cache-control: no-cache",
        b"x-request-id: r1",
        b"transfer-encoding: chunked",
    ]
    assert body == b"e\r\n%b\r\n" % COMMENT


def test_for_a_client_without_chunks_the_end_of_the_connection_is_the_end() -> None:
    head, _, body = Patience(_Dialect(), 0.0).begin(chunked=False, close=True).partition(b"\r\n\r\n")
    assert head.endswith(b"connection: close")
    assert body == COMMENT


EVENTS = [(b"content-type", b"text/event-stream")]
JSON = [(b"content-type", b"application/json")]


def test_a_stream_of_the_application_goes_on_in_the_one_that_has_begun() -> None:
    patience = Patience(_Dialect(), 0.0)
    patience.answer_begins(200, EVENTS)
    assert patience.pass_on(b"data: 1\n\n", more=True) == (b"data: 1\n\n", False)
    assert patience.pass_on(b"", more=False) == (b"", False)


@pytest.mark.parametrize(
    ("status", "headers", "event"),
    [(503, JSON, b"503|{12}"), (400, EVENTS, b"400|{12}"), (200, JSON, b"502|"), (204, [], b"502|")],
)
def test_every_other_answer_becomes_an_event_that_breaks_the_stream(
    status: int, headers: list[tuple[bytes, bytes]], event: bytes
) -> None:
    patience = Patience(_Dialect(), 0.0)
    patience.answer_begins(status, headers)
    assert patience.pass_on(b"{1", more=True) == (b"", False)
    assert patience.pass_on(b"2}", more=False) == (event, True)
