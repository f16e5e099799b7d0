"""Upstreams over TLS: who they must prove to be, what they are told, and why a connection to one fails.

That requests, streams, retries and endings are the same over TLS is what the fixture `both_ways` shows.
"""

import asyncio
import shutil
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from core.http import dial
from core.http.dial import Dialer, Place, load_trust
from core.http.exchange import ExchangeError, exchange
from core.http.limits import DEFAULT_POOL_LIMITS, PoolLimits
from core.http.pool import Target, UpstreamPool
from core.http.reach import Reach
from core.http.verdict import Ended
from tests.integration.http.harness import TLS_DATA, Conversation, replying, upstream, whole

AUTHORITY = str(TLS_DATA / "authority.pem")
OURS = Reach(tls=True, ca_file=AUTHORITY)
FOREIGN = Reach(tls=True, ca_file=AUTHORITY, base_path=b"/api/v1", is_foreign=True)
PROVIDER = TLS_DATA / "provider.pem"


@asynccontextmanager
async def _target(
    port: int, reach: Reach = OURS, host: str = "127.0.0.1", limits: PoolLimits = DEFAULT_POOL_LIMITS
) -> AsyncIterator[Target]:
    pool = UpstreamPool(limits)
    try:
        yield pool.target("t", host, port, "provider-key", reach=reach)
    finally:
        await pool.close()


class _Dialled(asyncio.Protocol):
    transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport


def _ask(target: Target, path: bytes = b"/v1/chat/completions") -> exchange:
    headers = [(b"content-type", b"application/json"), (b"x-llmgw-request-class", b"interactive")]
    return exchange(target, method=b"POST", path=path, headers=headers, body=b"{}")


async def _failure(target: Target) -> ExchangeError:
    with pytest.raises(ExchangeError) as raised:
        async with _ask(target):
            pass
    return raised.value


REFUSED: list[tuple[str, Path, Reach, str]] = [
    ("expired", TLS_DATA / "provider-expired.pem", OURS, "certificate has expired"),
    ("another host's", TLS_DATA / "provider-elsewhere.pem", OURS, "not valid for '127.0.0.1'"),
    ("nobody's", TLS_DATA / "first.pem", OURS, "self-signed certificate"),
    ("not of the system's authorities", PROVIDER, Reach(tls=True), "unable to get local issuer certificate"),
    ("a CA file that is not there", PROVIDER, Reach(tls=True, ca_file="/nowhere/ca"), "/nowhere/ca: No such file"),
    ("a CA file without one", PROVIDER, Reach(tls=True, ca_file="/dev/null"), "/dev/null: holds no certificate"),
]


@pytest.mark.parametrize(("certificate", "reach", "words"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
async def test_who_cannot_be_trusted_is_not_asked_and_the_reason_is_named(
    certificate: Path, reach: Reach, words: str
) -> None:
    key = TLS_DATA / "first-key.pem" if certificate.name == "first.pem" else None
    script = replying(whole(200, b"{}"))
    async with upstream(script, certificate=certificate, key=key) as up, _target(up.port, reach) as target:
        error = await _failure(target)
    assert error.ended is Ended.CONNECT_FAILED
    assert words in error.detail


async def test_who_speaks_no_tls_is_not_asked() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.say(b"SSH-2.0-OpenSSH_9.2\r\n")
        await conversation.wait_closed()

    async with upstream(script) as up, _target(up.port) as target:
        error = await _failure(target)
    assert error.ended is Ended.CONNECT_FAILED
    assert error.detail.startswith("no TLS with it: ")


async def test_a_service_is_called_by_its_name_and_below_its_own_path() -> None:
    heads: list[bytes] = []

    async def script(conversation: Conversation) -> None:
        head, _ = await conversation.request()
        heads.append(head)
        assert conversation.tls.selected_alpn_protocol() == "http/1.1"
        await conversation.say(whole(200, b"{}"))

    async with (
        upstream(script, certificate=PROVIDER) as up,
        _target(up.port, FOREIGN, "localhost") as target,
        _ask(target) as answer,
    ):
        assert await answer.read(100) == b"{}"
    head = heads[0].decode()
    assert head.startswith("POST /api/v1/chat/completions HTTP/1.1\r\n")
    assert f"\r\nhost: localhost:{up.port}\r\n" in head
    assert "\r\nauthorization: Bearer provider-key\r\n" in head
    assert "\r\ncontent-type: application/json\r\n" in head
    assert "x-llmgw" not in head


async def test_a_handshake_that_never_ends_takes_no_longer_than_a_connection_may() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        limits = replace(DEFAULT_POOL_LIMITS, connect_timeout_s=0.2)
        async with _target(silent.getsockname()[1], limits=limits) as target:
            error = await _failure(target)
    assert (error.ended, error.detail) == (Ended.CONNECT_FAILED, "no connection within 0.2 s")


async def test_leaving_during_the_handshake_closes_the_connection() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        silent.setblocking(False)
        async with _target(silent.getsockname()[1]) as target, asyncio.timeout(30):
            asking = asyncio.ensure_future(_failure(target))
            taken, _ = await asyncio.get_running_loop().sock_accept(silent)
            with taken:
                assert await asyncio.get_running_loop().sock_recv(taken, 1)
                asking.cancel()
                while await asyncio.get_running_loop().sock_recv(taken, 65536):
                    pass


async def test_a_renewed_ca_file_counts_for_the_next_connection(tmp_path: Path) -> None:
    trusted = tmp_path / "ca.pem"
    shutil.copy(TLS_DATA / "first.pem", trusted)
    async with (
        upstream(replying(whole(200, b"{}")), certificate=PROVIDER) as up,
        _target(up.port, Reach(tls=True, ca_file=str(trusted))) as target,
    ):
        assert "issuer" in (await _failure(target)).detail
        shutil.copy(AUTHORITY, trusted)
        async with _ask(target) as answer:
            assert answer.status == 200


def test_without_a_file_the_systems_authorities_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", AUTHORITY)
    monkeypatch.setenv("SSL_CERT_DIR", "/nowhere")
    context = load_trust("")
    assert [each["subject"][0][0][1] for each in context.get_ca_certs()] == ["llmgw test authority"]
    assert context.check_hostname and context.verify_mode is ssl.CERT_REQUIRED


async def test_each_address_of_a_name_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    # Replaced, because no name that resolves like this can be relied on: the first address refuses.
    async def resolve(host: str) -> list[Place]:
        return [(socket.AF_INET, ("127.255.0.9", 0)), (socket.AF_INET, ("127.0.0.1", 0))]

    monkeypatch.setattr(dial, "_resolve", resolve)
    async with (
        upstream(replying(whole(200, b"{}")), certificate=PROVIDER) as up,
        _target(up.port, OURS, "localhost") as target,
        _ask(target) as answer,
    ):
        assert answer.status == 200


async def test_a_name_is_looked_up_once_for_those_who_need_it_together(monkeypatch: pytest.MonkeyPatch) -> None:
    # Replaced, because the name service cannot be made slow.
    asked: list[str] = []
    begun, answered = asyncio.Event(), asyncio.Event()

    async def resolve(host: str) -> list[Place]:
        asked.append(host)
        begun.set()
        await answered.wait()
        return [(socket.AF_INET, ("127.0.0.1", 0))]

    monkeypatch.setattr(dial, "_resolve", resolve)
    async with upstream(replying(whole(200, b"{}"))) as up:
        dialer = Dialer(DEFAULT_POOL_LIMITS)
        dialled = [_Dialled() for _ in range(4)]
        opening = [asyncio.ensure_future(dialer.open(each, "a.test", up.port, Reach(), 30)) for each in dialled[:3]]
        await begun.wait()
        opening[0].cancel()
        answered.set()
        await asyncio.gather(*opening[1:])
        assert asked == ["a.test"]
        await dialer.open(dialled[3], "a.test", up.port, Reach(), 30)
        assert asked == ["a.test", "a.test"]
        for each in dialled[1:]:
            assert each.transport is not None
            each.transport.close()
        await dialer.close()


async def test_a_name_that_is_unknown_is_a_failure_to_connect() -> None:
    async with _target(1, OURS, "no-such-host.invalid") as target:
        error = await _failure(target)
    assert error.ended is Ended.CONNECT_FAILED
    assert error.detail
