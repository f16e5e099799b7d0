"""What a head means that llhttp let through, and the targets and heads made of it."""

import pytest

from core.http import refusal
from core.http.asgi import Headers
from core.http.limits import DEFAULT_LIMITS
from core.http.refusal import Refusal
from core.http.request import HeadFacts, build_scope, read_head, split_target, without_upgrade

_HOST = (b"host", b"x")
_FIVE = (b"content-length", b"5")
_CHUNKED = (b"transfer-encoding", b"chunked")
_EXPECTS = (b"expect", b"100-continue")

HEADS: list[tuple[str, bytes, str, Headers, HeadFacts | Refusal]] = [
    ("plain", b"GET", "1.1", [_HOST], HeadFacts(0, False)),
    ("1.0 without host", b"GET", "1.0", [], HeadFacts(0, False)),
    ("1.0 with host", b"GET", "1.0", [_HOST], HeadFacts(0, False)),
    ("1.0 with two", b"GET", "1.0", [_HOST, _HOST], refusal.NO_HOST),
    ("no host", b"GET", "1.1", [], refusal.NO_HOST),
    ("two hosts", b"GET", "1.1", [_HOST, _HOST], refusal.NO_HOST),
    ("length", b"POST", "1.1", [_HOST, _FIVE], HeadFacts(5, False)),
    ("length at the limit", b"POST", "1.1", [_HOST, (b"content-length", b"67108864")], HeadFacts(64 << 20, False)),
    ("length over it", b"POST", "1.1", [_HOST, (b"content-length", b"67108865")], refusal.BODY_TOO_LARGE),
    ("two lengths", b"POST", "1.1", [_HOST] + [_FIVE] * 2, refusal.BAD_FRAMING),
    ("no number", b"POST", "1.1", [_HOST, (b"content-length", b"5x")], refusal.BAD_FRAMING),
    ("chunked", b"POST", "1.1", [_HOST, _CHUNKED], HeadFacts(None, False)),
    ("Chunked", b"POST", "1.1", [_HOST, (b"transfer-encoding", b" Chunked ")], HeadFacts(None, False)),
    ("two codings", b"POST", "1.1", [_HOST] + [_CHUNKED] * 2, refusal.UNKNOWN_CODING),
    ("gzip", b"POST", "1.1", [_HOST, (b"transfer-encoding", b"gzip, chunked")], refusal.UNKNOWN_CODING),
    ("identity", b"POST", "1.1", [_HOST, (b"transfer-encoding", b"identity")], refusal.UNKNOWN_CODING),
    ("both", b"POST", "1.1", [_HOST, _CHUNKED, _FIVE], refusal.BAD_FRAMING),
    ("chunked 1.0", b"POST", "1.0", [_CHUNKED], refusal.BAD_FRAMING),
    ("expecting", b"POST", "1.1", [_HOST, (b"expect", b"100-Continue"), _FIVE], HeadFacts(5, True)),
    ("expecting chunks", b"POST", "1.1", [_HOST, _EXPECTS, _CHUNKED], HeadFacts(None, True)),
    ("expecting without body", b"GET", "1.1", [_HOST, _EXPECTS], HeadFacts(0, False)),
    ("expecting in 1.0", b"POST", "1.0", [_EXPECTS, _FIVE], HeadFacts(5, False)),
    ("another expectation", b"POST", "1.1", [_HOST, (b"expect", b"200-ok"), _FIVE], refusal.UNKNOWN_EXPECTATION),
    ("tunnel", b"CONNECT", "1.1", [_HOST], refusal.NO_TUNNELS),
    ("2.0", b"GET", "2.0", [_HOST], refusal.UNKNOWN_VERSION),
    ("0.9", b"GET", "0.9", [], refusal.UNKNOWN_VERSION),
    ("128 fields", b"GET", "1.1", [_HOST] + [(b"x", b"y")] * 127, HeadFacts(0, False)),
    ("129 fields", b"GET", "1.1", [_HOST] + [(b"x", b"y")] * 128, refusal.HEAD_TOO_LARGE),
]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "version", "headers", "expected"), [row[1:] for row in HEADS], ids=[row[0] for row in HEADS]
)
def test_a_head_is_taken_or_refused(
    method: bytes, version: str, headers: Headers, expected: HeadFacts | Refusal
) -> None:
    assert read_head(method, version, headers, DEFAULT_LIMITS) == expected


TARGETS: list[tuple[bytes, tuple[bytes, bytes] | Refusal]] = [
    (b"/", (b"/", b"")),
    (b"/a/b", (b"/a/b", b"")),
    (b"/a?b=c", (b"/a", b"b=c")),
    (b"/a?b?c", (b"/a", b"b?c")),
    (b"/?", (b"/", b"")),
    (b"//a", (b"//a", b"")),
    (b"*", (b"*", b"")),
    (b"http://h/a", (b"/a", b"")),
    (b"https://h:1/a?b", (b"/a", b"b")),
    (b"HTTP://h/a", (b"/a", b"")),
    (b"http://h", (b"/", b"")),
    (b"http://h?b", (b"/", b"b")),
    (b"http://h?b/c", (b"/", b"b/c")),
    (b"http://", (b"/", b"")),
    (b"ftp://h/a", refusal.BAD_TARGET),
    (b"h:1", refusal.BAD_TARGET),
    (b"a", refusal.BAD_TARGET),
    (b"", refusal.BAD_TARGET),
    (b"/a#b", refusal.BAD_TARGET),
    (b"http://h/a#b", refusal.BAD_TARGET),
]


@pytest.mark.parametrize(("target", "expected"), TARGETS, ids=lambda value: str(value))
def test_a_target_is_split(target: bytes, expected: tuple[bytes, bytes] | Refusal) -> None:
    assert split_target(target) == expected


UPGRADES: list[tuple[Headers, Headers]] = [
    ([(b"upgrade", b"h2c"), (b"connection", b"Upgrade")], []),
    ([(b"upgrade", b"h2c"), (b"connection", b"close, Upgrade")], [(b"connection", b"close")]),
    ([(b"connection", b"Upgrade, HTTP2-Settings"), (b"http2-settings", b"A"), (b"x", b"y")], [(b"x", b"y")]),
    ([(b"connection", b"keep-alive , x-a"), (b"x-a", b"1")], [(b"connection", b"keep-alive, x-a"), (b"x-a", b"1")]),
]


@pytest.mark.parametrize(("headers", "expected"), UPGRADES)
def test_a_head_without_its_offer_to_upgrade(headers: Headers, expected: Headers) -> None:
    lines = b"".join(b"%b: %b\r\n" % field for field in expected)
    assert without_upgrade(b"POST", b"/a?b", "1.1", headers) == b"POST /a?b HTTP/1.1\r\n" + lines + b"\r\n"


PATHS: list[tuple[bytes, str]] = [
    (b"/a", "/a"),
    (b"/a%20b", "/a b"),
    (b"/%e2%82%ac", "/\u20ac"),
    (b"/a%2Fb", "/a/b"),
    (b"/%ff", "/\ufffd"),
    (b"/%", "/%"),
    (b"/%zz", "/%zz"),
    (b"/%00", "/\x00"),
]


@pytest.mark.parametrize(("raw", "path"), PATHS)
def test_the_application_sees_the_decoded_path_and_can_see_the_raw_one(raw: bytes, path: str) -> None:
    scope = build_scope(b"GET", raw, b"q=%20", "1.1", [])
    assert (scope["path"], scope["raw_path"], scope["query_string"]) == (path, raw, b"q=%20")
