"""How the gateway meets clients that come by a proxy, from a web page, or over TLS."""

import asyncio
import signal
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.fakes.daemon_socket import FakeDaemon
from tests.fakes.upstream import Behaviour, FakeUpstream
from tests.integration.gateway.certificates import ask_over_tls, meeting, place, secured, trusting
from tests.integration.gateway.harness import (
    CHAT,
    chat,
    gateway,
    prepare_layout,
    raw_request,
    render_request,
    target_of,
)
from tests.integration.gateway.workers import workers
from tests.patience import MOMENT_S
from tests.unit.gateway.tables import key, model, table

APP = "https://app.example.org"


FORWARDED: list[tuple[str, list[str], Mapping[str, str], int]] = [
    ("a local client", [], {}, 200),
    ("a header that nobody is trusted to send", [], {"x-forwarded-for": "203.0.113.9"}, 200),
    ("a local client of a proxy", ["127.0.0.1"], {"x-forwarded-for": "127.0.0.1"}, 401),
    ("a distant client of a proxy", ["127.0.0.1"], {"x-forwarded-for": "203.0.113.9"}, 401),
    ("one that says it is local", ["127.0.0.1"], {"x-forwarded-for": "127.0.0.1, 203.0.113.9"}, 401),
    ("one with a key", ["127.0.0.1"], {"x-forwarded-for": "203.0.113.9", "authorization": "Bearer k"}, 200),
    ("the proxy itself", ["127.0.0.1"], {}, 200),
]


@pytest.mark.parametrize("lane", ["fast lane", "resource"])
@pytest.mark.parametrize(
    ("trusted", "headers", "status"), [row[1:] for row in FORWARDED], ids=[row[0] for row in FORWARDED]
)
async def test_open_access_is_for_clients_that_are_local_themselves(
    tmp_path: Path, lane: str, trusted: list[str], headers: Mapping[str, str], status: int
) -> None:
    async with FakeUpstream() as engine:
        routes = meeting(table(model("m", target_of(engine)), keys=(key("k"),)), trusted_proxies=trusted)
        async with gateway(tmp_path, routes, lane=lane) as gw:
            address = (gw.host, gw.port)
            assert (await raw_request(address, CHAT, chat(), headers)).status == status
            assert (await raw_request(address, "/v1/models", headers=headers, method="GET")).status == status


@pytest.mark.parametrize("stream", [False, True])
async def test_the_log_names_the_client_and_not_the_proxy(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], stream: bool
) -> None:
    async with FakeUpstream() as engine:
        routes = meeting(table(model("m", target_of(engine)), keys=(key("k"),)), trusted_proxies=["127.0.0.1"])
        async with gateway(tmp_path, routes) as gw:
            headers = {"x-forwarded-for": "10.6.6.6, 203.0.113.9", "authorization": "Bearer k"}
            await raw_request((gw.host, gw.port), CHAT, chat(stream=stream), headers)
    (line,) = [line for line in capfd.readouterr().err.splitlines() if " path=/v1/chat/completions " in line]
    assert line.endswith(" client=203.0.113.9")


PAGES: list[tuple[str, str, bytes, int]] = [
    ("GET", "/v1/models", b"", 200),
    ("POST", CHAT, chat(), 200),
    ("POST", CHAT, chat(stream=True), 200),
    ("POST", CHAT, chat("alias"), 200),
    ("POST", CHAT, chat("none"), 404),
    ("POST", CHAT, b"nonsense", 400),
    ("GET", "/v1/nothing", b"", 404),
    ("POST", "/v1/messages", b'{"model":"m","messages":[{"role":"user","content":"x"}],"max_tokens":1}', 200),
]


@pytest.mark.parametrize(("method", "path", "body", "status"), PAGES)
async def test_an_allowed_page_may_read_every_answer_and_no_other_page_one(
    tmp_path: Path, method: str, path: str, body: bytes, status: int
) -> None:
    async with FakeUpstream(Behaviour(headers={"access-control-allow-origin": "*"})) as engine:
        routes = meeting(table(model("m", target_of(engine), aliases=("alias",))), cors_origins=[APP])
        async with gateway(tmp_path, routes) as gw:
            answer = await raw_request((gw.host, gw.port), path, body, {"origin": APP}, method)
            assert (answer.status, answer.headers["access-control-allow-origin"]) == (status, APP)
            assert answer.headers["vary"] == "origin"
            assert "retry-after" in answer.headers["access-control-expose-headers"]
            for others in ({"origin": "https://evil.example"}, {}):
                answer = await raw_request((gw.host, gw.port), path, body, others, method)
                assert answer.status == status
                assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_a_preflight_needs_no_key_and_asks_no_engine(tmp_path: Path) -> None:
    asked = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,x-own"}
    async with FakeUpstream() as engine:
        routes = meeting(
            table(model("m", target_of(engine)), keys=(key("k"),), allow_missing_auth=False), cors_origins=[APP]
        )
        async with gateway(tmp_path, routes) as gw:
            address = (gw.host, gw.port)
            answer = await raw_request(address, CHAT, headers={"origin": APP} | asked, method="OPTIONS")
            assert (answer.status, answer.body) == (204, b"")
            assert answer.headers["access-control-allow-methods"] == "GET, POST, OPTIONS"
            assert answer.headers["access-control-allow-headers"] == "authorization,x-own"
            denied = await raw_request(
                address, CHAT, headers={"origin": "https://evil.example"} | asked, method="OPTIONS"
            )
            assert "access-control-allow-methods" not in denied.headers
            admin = await raw_request(address, "/gateway/status", headers={"origin": APP} | asked, method="OPTIONS")
            assert "access-control-allow-origin" not in admin.headers
    assert engine.seen == []


CLOSE = {"connection": "close"}


async def test_tls_serves_answers_and_streams_and_a_reload_takes_up_a_new_certificate(tmp_path: Path) -> None:
    place(tmp_path, "first")
    async with (
        FakeUpstream(Behaviour(pieces=50)) as engine,
        FakeDaemon(prepare_layout(tmp_path).daemon_socket, secured(tmp_path, engine)),
        workers(tmp_path, 2, tls=trusting("first", "second")) as running,
    ):
        first, second = trusting("first"), trusting("second")
        assert (await ask_over_tls(running.address, first, render_request(CHAT, chat(), CLOSE))).status == 200
        streamed = await ask_over_tls(running.address, first, render_request(CHAT, chat(stream=True), CLOSE))
        assert streamed.body.endswith(b"data: [DONE]\n\n")
        large = chat(image="x" * 5_000_000)
        assert (await ask_over_tls(running.address, first, render_request(CHAT, large, CLOSE))).status == 200
        # Plain HTTP gets no word of HTTP.
        reader, writer = await asyncio.open_connection(*running.address)
        writer.write(render_request(CHAT, chat(), CLOSE))
        assert not (await reader.read()).startswith(b"HTTP")
        writer.close()
        with pytest.raises(ssl.SSLError):
            await ask_over_tls(running.address, second, render_request(CHAT, chat(), CLOSE))
        old = running.children()
        place(tmp_path, "second")
        running.process.send_signal(signal.SIGHUP)
        await running.wait_gone(old)
        assert (await ask_over_tls(running.address, second, render_request(CHAT, chat(), CLOSE))).status == 200
        with pytest.raises(ssl.SSLError):
            await ask_over_tls(running.address, first, render_request(CHAT, chat(), CLOSE))


async def test_a_client_that_leaves_over_tls_closes_its_engine(tmp_path: Path) -> None:
    place(tmp_path, "first")
    async with (
        FakeUpstream(Behaviour(pieces=1000, pause_s=0.05)) as engine,
        FakeDaemon(prepare_layout(tmp_path).daemon_socket, secured(tmp_path, engine)),
        workers(tmp_path, 1, tls=trusting("first")) as running,
    ):
        reader, writer = await asyncio.open_connection(*running.address, ssl=trusting("first"))
        writer.write(render_request(CHAT, chat(stream=True)))
        await reader.readuntil(b"w0 ")
        writer.transport.abort()
        async with asyncio.timeout(1 + MOMENT_S):
            await engine.wait_for(lambda: engine.abandoned == 1)


@pytest.mark.parametrize(
    ("certificate", "key_name", "reason"),
    [("first", "second", "mismatch"), ("first", "locked", "passphrase"), ("first", "", "No such file")],
)
async def test_a_certificate_that_cannot_be_served_opens_no_port_and_says_why(
    tmp_path: Path, certificate: str, key_name: str, reason: str
) -> None:
    place(tmp_path, certificate, key_name)
    if not key_name:
        (tmp_path / "key.pem").unlink()
    async with (
        FakeUpstream() as engine,
        FakeDaemon(prepare_layout(tmp_path).daemon_socket, secured(tmp_path, engine)),
        workers(tmp_path, 1, ready=False) as running,
    ):
        assert reason.lower() in (await running.wait_said("tls_unusable")).lower()
        with socket.create_connection(running.address) as client:
            client.settimeout(0.3)
            client.sendall(render_request("/health", method="GET"))
            with pytest.raises(TimeoutError):
                client.recv(1)
