"""Whose request it is: by the connection, or by the word of a proxy that is trusted, and never nearer than it is."""

import pytest

from gateway.client_address import TrustedProxies, compile_proxies, find_address

LOCAL = compile_proxies(["127.0.0.1", "::1"])
FABRIC = compile_proxies(["10.0.0.0/8", "fd00::/8"])
SOCKET = compile_proxies(["unix"])
NOBODY = TrustedProxies()

CASES: list[tuple[str, TrustedProxies, str, list[bytes], str]] = [
    ("nobody is trusted", NOBODY, "127.0.0.1", [b"203.0.113.9"], "127.0.0.1"),
    ("a stranger's word", FABRIC, "203.0.113.9", [b"127.0.0.1"], "203.0.113.9"),
    ("no word", LOCAL, "127.0.0.1", [], "127.0.0.1"),
    ("an empty word", LOCAL, "127.0.0.1", [b""], "127.0.0.1"),
    ("one client", LOCAL, "127.0.0.1", [b"203.0.113.9"], "203.0.113.9"),
    ("a client of IPv6", LOCAL, "::1", [b"2001:db8::9"], "2001:db8::9"),
    ("in brackets, with a port", LOCAL, "127.0.0.1", [b"[2001:db8::9]:4711"], "2001:db8::9"),
    ("with a port", LOCAL, "127.0.0.1", [b"203.0.113.9:4711"], "203.0.113.9"),
    ("what a client invented", LOCAL, "127.0.0.1", [b"127.0.0.1, 10.9.9.9, 203.0.113.9"], "203.0.113.9"),
    ("in two fields", LOCAL, "127.0.0.1", [b"127.0.0.1", b"203.0.113.9"], "203.0.113.9"),
    ("two proxies of ours", FABRIC, "10.0.0.1", [b"203.0.113.9, 10.0.0.2"], "203.0.113.9"),
    ("a proxy that is not ours", FABRIC, "10.0.0.1", [b"203.0.113.9, 198.51.100.1"], "198.51.100.1"),
    ("nothing but proxies", FABRIC, "10.0.0.1", [b"10.0.0.3, 10.0.0.2"], "unknown"),
    ("a word that is no address", LOCAL, "127.0.0.1", [b"203.0.113.9, unknown"], "unknown"),
    ("markup", LOCAL, "127.0.0.1", [b"<script>"], "unknown"),
    ("a line break", LOCAL, "127.0.0.1", [b"203.0.113.9\x0b key=x"], "unknown"),
    ("the local host, said by a distant proxy", FABRIC, "10.0.0.1", [b"127.0.0.1"], "unknown"),
    ("the local host in other words", FABRIC, "10.0.0.1", [b"::ffff:127.0.0.1"], "unknown"),
    ("an IPv4 proxy seen by an IPv6 socket", FABRIC, "::ffff:10.0.0.1", [b"203.0.113.9"], "203.0.113.9"),
    ("a unix socket that is not trusted", LOCAL, "", [b"203.0.113.9"], ""),
    ("a unix socket that is", SOCKET, "", [b"203.0.113.9"], "203.0.113.9"),
    ("a local client of a proxy on a unix socket", SOCKET, "", [b"127.0.0.1"], "127.0.0.1"),
    ("a link's address", compile_proxies(["fe80::1"]), "fe80::1%eth0", [b"203.0.113.9"], "203.0.113.9"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("trusted", "peer", "said", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_a_client_is_who_its_connection_or_a_trusted_proxy_says(
    trusted: TrustedProxies, peer: str, said: list[bytes], expected: str
) -> None:
    headers = [(b"host", b"x"), *((b"x-forwarded-for", value) for value in said), (b"forwarded", b"for=192.0.2.1")]
    assert find_address(peer, headers, trusted) == expected


def test_what_is_no_network_trusts_nobody() -> None:
    assert not compile_proxies(["example.org", "10.0.0.1/8", ""])
