"""Heads that are known again: only when llhttp would have said the very same thing."""

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.http.asgi import Headers
from core.http.repeat import RememberedResponse, remember_request, remember_response

_FIRST = b"POST /v1/x?y HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nX: y\r\n\r\nhello"
_HEADERS: Headers = [(b"host", b"x"), (b"content-length", b"5"), (b"x", b"y")]


class _Parsed:
    """What llhttp says of a request."""

    def __init__(self, data: bytes) -> None:
        self.headers: Headers = []
        self.body = b""
        self.whole = 0
        httptools.HttpRequestParser(self).feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.whole += 1


KNOWN: list[tuple[str, bytes, bytes]] = [
    ("the same", _FIRST, b"hello"),
    ("another body", _FIRST.replace(b"hello", b"world"), b"world"),
    ("a longer body", _FIRST.replace(b"5", b"11").replace(b"hello", b"hello world"), b"hello world"),
    ("no body", _FIRST.replace(b"5", b"0").replace(b"hello", b""), b""),
    ("a head in the body", _FIRST.replace(b"5", b"%d" % len(_FIRST)).replace(b"hello", _FIRST), _FIRST),
]


@pytest.mark.parametrize(("data", "body"), [row[1:] for row in KNOWN], ids=[row[0] for row in KNOWN])
def test_a_request_is_known_again(data: bytes, body: bytes) -> None:
    remembered = remember_request(_FIRST, _HEADERS, 5)
    assert remembered is not None
    found = remembered.match(data)
    assert found is not None
    parsed = _Parsed(data)
    assert (remembered.headers(found[0]), found[1], 1) == (parsed.headers, parsed.body, parsed.whole)
    assert found[1] == body


UNKNOWN: list[tuple[str, bytes]] = [
    ("another path", _FIRST.replace(b"/v1/x", b"/v1/y")),
    ("another method", _FIRST.replace(b"POST", b"PUT")),
    ("another field", _FIRST.replace(b"X: y", b"X: z")),
    ("one field more", _FIRST.replace(b"X: y", b"X: y\r\nExpect: 100-continue")),
    ("one field more after the length", _FIRST.replace(b"5\r\n", b"5\r\nTransfer-Encoding: chunked\r\n")),
    ("a field less", _FIRST.replace(b"X: y\r\n", b"")),
    ("half a head", _FIRST[:30]),
    ("half a body", _FIRST[:-1]),
    ("a byte too many", _FIRST + b"G"),
    ("two requests", _FIRST + _FIRST),
    ("leading zeros", _FIRST.replace(b"5", b"005")),
    ("a sign", _FIRST.replace(b" 5", b" +5")),
    ("a blank after the digits", _FIRST.replace(b"5\r\n", b"5 \r\n")),
    ("a list", _FIRST.replace(b"5\r\n", b"5, 5\r\n")),
    ("no digits", _FIRST.replace(b"5\r\n", b"\r\n")),
    ("other digits", _FIRST.replace(b"5\r\n", "\u0665\r\n".encode())),
    ("endless digits", _FIRST.replace(b"5\r\n", b"0" * 30 + b"5\r\n")),
    ("a bare LF", _FIRST.replace(b"5\r\n", b"5\n")),
    ("nothing", b""),
]


@pytest.mark.parametrize("data", [row[1] for row in UNKNOWN], ids=[row[0] for row in UNKNOWN])
def test_what_is_not_the_same_is_parsed(data: bytes) -> None:
    remembered = remember_request(_FIRST, _HEADERS, 5)
    assert remembered is not None
    assert remembered.match(data) is None


@pytest.mark.parametrize("stated", [*range(25), *range(90, 120), *range(985, 1015), 9_998, 9_999, 10_000, 10_001])
def test_a_message_is_known_by_exactly_as_many_bytes_as_it_states(stated: int) -> None:
    remembered = remember_request(_FIRST, _HEADERS, 5)
    assert remembered is not None
    head, digits = _FIRST[:-5].replace(b"5", b"%d" % stated), b"%d" % stated
    for there in range(max(stated - 12, 0), stated + 13):
        found = remembered.match(head + b"b" * there)
        assert found == ((digits, b"b" * there) if there == stated else None), there


FORGOTTEN: list[tuple[str, bytes, Headers, int]] = [
    ("an expectation", _FIRST, [*_HEADERS, (b"expect", b"100-continue")], 5),
    ("a coding", _FIRST, [*_HEADERS, (b"transfer-encoding", b"chunked")], 5),
    ("an upgrade", _FIRST, [*_HEADERS, (b"upgrade", b"h2c")], 5),
    ("closing", _FIRST, [*_HEADERS, (b"connection", b"close")], 5),
    ("naming", _FIRST, [*_HEADERS, (b"connection", b"keep-alive, x")], 5),
    ("no length", _FIRST.replace(b"Content-Length: 5\r\n", b""), [(b"host", b"x"), (b"x", b"y")], 0),
    ("more than one request", _FIRST + _FIRST, _HEADERS, 5),
    ("less than one", _FIRST[:-1], _HEADERS, 5),
    ("a rewritten head", _FIRST.replace(b"Content-Length: 5\r\n", b""), _HEADERS, 5),
]


@pytest.mark.parametrize(("data", "headers", "size"), [row[1:] for row in FORGOTTEN], ids=[row[0] for row in FORGOTTEN])
def test_a_head_that_could_change_the_framing_is_not_remembered(data: bytes, headers: Headers, size: int) -> None:
    assert remember_request(data, headers, size) is None


def test_the_length_is_found_where_it_is_and_not_where_it_is_spoken_of() -> None:
    spoken = b"POST /5 HTTP/1.1\r\nX-Content-Length: 5\r\nHost: content-length:5\r\ncontent-length:\t5\r\n\r\nhello"
    remembered = remember_request(spoken, _Parsed(spoken).headers, 5)
    assert remembered is not None
    longer = spoken.replace(b"\t5", b"\t6").replace(b"hello", b"hello!")
    found = remembered.match(longer)
    assert found is not None
    assert (remembered.headers(found[0]), found[1]) == (_Parsed(longer).headers, b"hello!")


@given(st.binary(max_size=40), st.integers(0, len(_FIRST)), st.integers(0, 12))
def test_whatever_is_known_again_is_what_llhttp_says(patch: bytes, at: int, removed: int) -> None:
    remembered = remember_request(_FIRST, _HEADERS, 5)
    assert remembered is not None
    data = _FIRST[:at] + patch + _FIRST[at + removed :]
    found = remembered.match(data)
    if found is not None:
        parsed = _Parsed(data)
        assert (remembered.headers(found[0]), found[1], 1) == (parsed.headers, parsed.body, parsed.whole)


_RESPONSE = b"HTTP/1.1 200 OK\r\nserver: e\r\nContent-Length: 5\r\ncontent-type: text/plain\r\n\r\nhello"
_FIELDS: Headers = [(b"server", b"e"), (b"content-length", b"5"), (b"content-type", b"text/plain")]


def test_a_known_response_is_passed_on_as_a_parsed_one_would_be() -> None:
    remembered = remember_response(_RESPONSE, 200, _FIELDS, 5)
    assert isinstance(remembered, RememberedResponse)
    found = remembered.match(_RESPONSE.replace(b"5", b"3").replace(b"hello", b"abc"))
    assert found == (b"3", b"abc")
    head = remembered.before + found[0] + remembered.after
    assert head == b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-type: text/plain\r\n"


@pytest.mark.parametrize("status", [201, 204, 301, 400, 401, 429, 500, 503])
def test_only_a_plain_success_is_remembered(status: int) -> None:
    assert remember_response(_RESPONSE.replace(b"200", b"%d" % status), status, _FIELDS, 5) is None
