"""What a service is asked for, and by which name it is called."""

import pytest

from core.http.reach import NEAR, Reach

PATHS: list[tuple[bytes, bytes, bytes]] = [
    (b"/v1", b"/v1/chat/completions", b"/v1/chat/completions"),
    (b"/api/v1", b"/v1/chat/completions", b"/api/v1/chat/completions"),
    (b"/v1beta/openai", b"/v1/embeddings", b"/v1beta/openai/embeddings"),
    (b"", b"/v1/embeddings", b"/embeddings"),
    (b"/api/v1", b"/tokenize", b"/tokenize"),
    (b"/api/v1", b"/v10/x", b"/v10/x"),
]


@pytest.mark.parametrize(("base", "path", "asked"), PATHS)
def test_a_path_is_asked_for_below_the_base(base: bytes, path: bytes, asked: bytes) -> None:
    assert Reach(base_path=base).path_of(path) == asked


AUTHORITIES: list[tuple[Reach, str, int, str]] = [
    (NEAR, "127.0.0.1", 8201, "127.0.0.1:8201"),
    (NEAR, "127.0.0.1", 80, "127.0.0.1:80"),
    (Reach(tls=True, is_foreign=True), "api.example.org", 443, "api.example.org"),
    (Reach(tls=True, is_foreign=True), "api.example.org", 8443, "api.example.org:8443"),
    (Reach(is_foreign=True), "10.0.0.7", 80, "10.0.0.7"),
    (Reach(is_foreign=True), "10.0.0.7", 443, "10.0.0.7:443"),
    (Reach(tls=True, is_foreign=True), "fd00::7", 443, "[fd00::7]"),
    (NEAR, "::1", 8201, "[::1]:8201"),
]


@pytest.mark.parametrize(("reach", "host", "port", "authority"), AUTHORITIES)
def test_a_host_is_called(reach: Reach, host: str, port: int, authority: str) -> None:
    assert reach.authority(host, port) == authority
