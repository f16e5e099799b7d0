"""Which pages may read answers: those that are named, on the inference routes alone."""

import pytest

from gateway.cors import compile_cors

APP = b"https://app.example.org"
ASK = [(b"origin", APP), (b"access-control-request-method", b"POST")]


def test_without_a_word_in_the_config_no_page_may() -> None:
    assert not compile_cors([])
    assert compile_cors([]).lines(b"/v1/models", [(b"origin", APP)]) == b""


@pytest.mark.parametrize(
    ("origins", "path", "origin", "allowed"),
    [
        (["https://app.example.org"], b"/v1/models", APP, APP),
        (["https://APP.example.org"], b"/v1/models", APP, APP),
        (["*"], b"/v1/models", b"https://any.example", b"*"),
        (["*"], b"/v1/models", b"null", b"*"),
        (["*"], b"/v1/models", b"", b""),
        (["https://app.example.org"], b"/v1/models", b"https://app.example.org.evil.example", b""),
        (["https://app.example.org"], b"/v1/models", b"http://app.example.org", b""),
        (["https://app.example.org"], b"/v1/models", b"https://app.example.org:8443", b""),
        (["https://app.example.org"], b"/v1/models", b"null", b""),
        (["*"], b"/gateway/status", APP, b""),
        (["*"], b"/health", APP, b""),
    ],
)
def test_an_origin_is_told_only_where_it_is_allowed(
    origins: list[str], path: bytes, origin: bytes, allowed: bytes
) -> None:
    lines = compile_cors(origins).lines(path, [(b"origin", origin)] if origin else [])
    assert (b"access-control-allow-origin: %b\r\n" % allowed in lines) == bool(allowed)
    assert bool(lines) == bool(allowed)
    assert b"credentials" not in lines


@pytest.mark.parametrize(
    ("method", "path", "headers", "answers"),
    [
        (b"OPTIONS", b"/v1/chat/completions", ASK, True),
        (b"GET", b"/v1/chat/completions", ASK, False),
        (b"OPTIONS", b"/v1/chat/completions", ASK[:1], False),
        (b"OPTIONS", b"/gateway/status", ASK, False),
        (b"OPTIONS", b"/v1/models", [(b"origin", b"https://other.example"), ASK[1]], False),
    ],
)
def test_a_browser_that_asks_beforehand_is_answered(
    method: bytes, path: bytes, headers: list[tuple[bytes, bytes]], answers: bool
) -> None:
    assert bool(compile_cors([APP.decode()]).preflight(method, path, headers)) == answers


@pytest.mark.parametrize(
    ("asked", "allowed"),
    [
        (b"authorization, x-stainless-os", b"authorization, x-stainless-os"),
        (b"x\r\nset-cookie: a", b""),
        (b"a" * 5000, b""),
    ],
)
def test_a_page_may_send_the_headers_that_it_names_if_they_are_names(asked: bytes, allowed: bytes) -> None:
    lines = compile_cors(["*"]).preflight(b"OPTIONS", b"/v1/x", [*ASK, (b"access-control-request-headers", asked)])
    assert (b"access-control-allow-headers: %b\r\n" % allowed in lines) == bool(allowed)
    assert b"set-cookie" not in lines
