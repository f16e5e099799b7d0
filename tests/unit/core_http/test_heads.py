"""Which fields cross the relay, and the heads that result."""

import pytest

from core.http.asgi import Headers
from core.http.heads import (
    Delimiter,
    downstream_fields,
    foreign_fields,
    foreign_lines,
    is_event_stream,
    request_head,
    response_head,
    upstream_lines,
)

_FIXED = b"host: engine:1\r\nauthorization: Bearer sk-engine\r\n"

UPSTREAM: list[tuple[bytes, bool]] = [
    (b"content-type", True),
    (b"accept", True),
    (b"user-agent", True),
    (b"x-something-new", True),
    (b"anthropic-version", True),
    (b"traceparent", True),
    (b"authorization", False),
    (b"proxy-authorization", False),
    (b"x-api-key", False),
    (b"api-key", False),
    (b"cookie", False),
    (b"host", False),
    (b"content-length", False),
    (b"transfer-encoding", False),
    (b"expect", False),
    (b"te", False),
    (b"trailer", False),
    (b"upgrade", False),
    (b"http2-settings", False),
    (b"keep-alive", False),
    (b"proxy-connection", False),
    (b"accept-encoding", False),
    (b"origin", False),
    (b"referer", False),
    (b"forwarded", False),
    (b"x-forwarded-for", False),
    (b"x-real-ip", False),
    (b"sec-fetch-site", False),
]


@pytest.mark.parametrize(("name", "crosses"), UPSTREAM, ids=lambda value: str(value))
def test_a_request_field_crosses_or_stays(name: bytes, crosses: bool) -> None:
    head = request_head(b"POST", b"/v1/x", upstream_lines([(name, b"client-value")]), fixed=_FIXED, length=2)
    assert (b"\r\n%b: client-value\r\n" % name in head) is crosses


TO_FOREIGNERS: list[tuple[bytes, bool]] = [
    (b"content-type", True),
    (b"accept", True),
    (b"openai-beta", True),
    (b"anthropic-version", True),
    (b"idempotency-key", True),
    (b"user-agent", False),
    (b"openai-organization", False),
    (b"openai-project", False),
    (b"x-llmgw-request-class", False),
    (b"x-llmgw-caller", False),
    (b"x-lloom-request-class", False),
    (b"x-stainless-os", False),
    (b"x-something-new", False),
    (b"traceparent", False),
    (b"authorization", False),
    (b"x-api-key", False),
    (b"cookie", False),
]


@pytest.mark.parametrize(("name", "crosses"), TO_FOREIGNERS, ids=lambda value: str(value))
def test_somebody_elses_service_is_told_what_is_asked_and_not_who_asks(name: bytes, crosses: bool) -> None:
    lines = upstream_lines([(b"accept", b"*/*"), (name, b"client-value")])
    head = request_head(b"POST", b"/v1/x", foreign_lines(lines), fixed=_FIXED, length=2)
    assert (b"\r\n%b: client-value\r\n" % name in head) is crosses
    assert b"\r\naccept: */*\r\n" in head


FROM_FOREIGNERS: list[tuple[bytes, bool]] = [
    (b"content-type", True),
    (b"cache-control", True),
    (b"retry-after", True),
    (b"openai-organization", False),
    (b"openai-processing-ms", False),
    (b"x-ratelimit-remaining-requests", False),
    (b"cf-ray", False),
    (b"set-cookie", False),
    (b"location", False),
]


@pytest.mark.parametrize(("name", "crosses"), FROM_FOREIGNERS, ids=lambda value: str(value))
def test_of_a_foreign_answer_only_what_is_about_the_answer_crosses(name: bytes, crosses: bool) -> None:
    fields = downstream_fields(foreign_fields([(b"content-length", b"2"), (name, b"value")]))
    assert ((name, b"value") in fields) is crosses


DOWNSTREAM: list[tuple[bytes, bool]] = [
    (b"content-type", True),
    (b"content-length", True),
    (b"cache-control", True),
    (b"retry-after", True),
    (b"date", False),
    (b"x-something-new", True),
    (b"openai-processing-ms", True),
    (b"server", False),
    (b"via", False),
    (b"x-powered-by", False),
    (b"set-cookie", False),
    (b"www-authenticate", False),
    (b"proxy-authenticate", False),
    (b"alt-svc", False),
    (b"access-control-allow-origin", False),
    (b"x-request-id", False),
    (b"x-llmgw-target", False),
    (b"connection", False),
    (b"keep-alive", False),
    (b"upgrade", False),
    (b"trailer", False),
]


@pytest.mark.parametrize(("name", "crosses"), DOWNSTREAM, ids=lambda value: str(value))
def test_a_response_field_crosses_or_stays(name: bytes, crosses: bool) -> None:
    headers: Headers = [(name, b"12")]
    head, _ = response_head(200, headers, added=b"", decoded=False, bodiless=False, close=False)
    assert (b"\r\n%b: 12\r\n" % name in head) is crosses
    assert (headers == downstream_fields(headers)) is crosses


NAMED: list[tuple[list[bytes], list[bytes]]] = [
    ([b"keep-alive"], [b"x-a", b"x-b", b"content-type"]),
    ([b"x-a"], [b"x-b", b"content-type"]),
    ([b"keep-alive, X-A"], [b"x-b", b"content-type"]),
    ([b"x-a", b"x-b"], [b"content-type"]),
    ([b"x-a,x-b,"], [b"content-type"]),
    ([b"content-type"], [b"x-a", b"x-b", b"content-type"]),
    ([b"transfer-encoding"], [b"x-a", b"x-b", b"content-type"]),
    ([b","], [b"x-a", b"x-b", b"content-type"]),
]


@pytest.mark.parametrize(("connection", "kept"), NAMED, ids=lambda value: str(value))
def test_fields_that_the_sender_named_stay_with_the_connection(connection: list[bytes], kept: list[bytes]) -> None:
    headers = [(b"connection", value) for value in connection]
    headers += [(name, b"1") for name in (b"x-a", b"x-b", b"content-type")]
    up = request_head(b"GET", b"/", upstream_lines(headers), fixed=b"", length=0)
    assert up == b"GET / HTTP/1.1\r\n" + b"".join(b"%b: 1\r\n" % name for name in kept) + b"\r\n"
    headers.append((b"content-length", b"5"))
    down, delimiter = response_head(200, headers, added=b"", decoded=False, bodiless=False, close=False)
    lines = b"".join(b"%b: 1\r\n" % name for name in kept)
    assert (down, delimiter) == (b"HTTP/1.1 200 OK\r\n" + lines + b"content-length: 5\r\n\r\n", Delimiter.LENGTH)
    assert downstream_fields(headers) == [(name, b"1") for name in kept] + [(b"content-length", b"5")]


LENGTHS: list[tuple[bytes, int, bool]] = [
    (b"POST", 5, True),
    (b"POST", 0, True),
    (b"PUT", 0, True),
    (b"PATCH", 0, True),
    (b"GET", 0, False),
    (b"GET", 5, True),
    (b"DELETE", 0, False),
    (b"HEAD", 0, False),
]


@pytest.mark.parametrize(("method", "length", "is_said"), LENGTHS)
def test_the_length_of_a_request_is_said_where_a_body_is_expected(method: bytes, length: int, is_said: bool) -> None:
    head = request_head(method, b"/", b"", fixed=b"", length=length)
    assert (b"content-length: %d\r\n" % length in head) is is_said
    assert head.endswith(b"\r\n\r\n")
    assert head.count(b"\r\n\r\n") == 1


_FIVE_AND_CLOSE = b"content-length: 5\r\nconnection: close\r\n\r\n"
_LENGTH: Headers = [(b"content-length", b"5")]
_CHUNKS: Headers = [(b"transfer-encoding", b"chunked")]

ENDINGS: list[tuple[str, Headers, bool, bool, bool, bytes, Delimiter]] = [
    ("length", _LENGTH, False, False, False, b"content-length: 5\r\n\r\n", Delimiter.LENGTH),
    ("length, closing", _LENGTH, False, False, True, _FIVE_AND_CLOSE, Delimiter.LENGTH),
    ("length, decoded", _LENGTH, True, False, False, b"content-length: 5\r\n\r\n", Delimiter.LENGTH),
    ("length of no body", _LENGTH, False, True, False, b"content-length: 5\r\n\r\n", Delimiter.LENGTH),
    ("chunks", _CHUNKS, False, False, False, b"transfer-encoding: chunked\r\n\r\n", Delimiter.CHUNKS),
    ("chunks of no body", _CHUNKS, False, True, False, b"transfer-encoding: chunked\r\n\r\n", Delimiter.LENGTH),
    ("chunks, decoded", _CHUNKS, True, False, False, b"connection: close\r\n\r\n", Delimiter.CLOSE),
    ("nothing", [], False, False, False, b"connection: close\r\n\r\n", Delimiter.CLOSE),
    ("no body", [], False, True, False, b"\r\n", Delimiter.LENGTH),
]  # fmt: skip


@pytest.mark.parametrize(
    ("headers", "decoded", "bodiless", "close", "rest", "delimiter"), [row[1:] for row in ENDINGS],
    ids=[row[0] for row in ENDINGS],
)  # fmt: skip
def test_a_response_says_how_its_body_ends(
    headers: Headers, decoded: bool, bodiless: bool, close: bool, rest: bytes, delimiter: Delimiter
) -> None:
    made = response_head(200, headers, added=b"x-request-id: 1\r\n", decoded=decoded, bodiless=bodiless, close=close)
    first = b"HTTP/1.1 200 OK\r\n"
    ending = b"connection: close\r\n\r\n" if rest.endswith(b"close\r\n\r\n") else b"\r\n"
    assert made == (first + rest.removesuffix(ending) + b"x-request-id: 1\r\n" + ending, delimiter)


TYPES: list[tuple[bytes | None, bool]] = [
    (b"text/event-stream", True),
    (b"text/event-stream; charset=utf-8", True),
    (b"Text/Event-Stream", True),
    (b"application/json", False),
    (b"text/plain", False),
    (b"", False),
    (None, False),
]


@pytest.mark.parametrize(("value", "is_one"), TYPES)
def test_an_event_stream_is_known_by_its_type(value: bytes | None, is_one: bool) -> None:
    headers = [] if value is None else [(b"content-type", value)]
    assert is_event_stream(headers) is is_one
