"""Websockets on our own server: real clients, and bytes that no client would send."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
import uvloop

from core.http.asgi import SPLICE_EXTENSION, Receive, Scope, Send
from core.http.limits import DEFAULT_LIMITS, HttpLimits
from core.http.server import HttpService
from core.http.stream import ClientStream
from core.http.websocket import WebSocket, WebSocketClosedError, WebSocketExpected
from tests.integration.http.harness import GET, RawClient, Served, connected, echo, serving

_PATIENCE_S = 30.0
_TLS = Path(__file__).parents[2] / "data" / "tls"
_HANDSHAKE = (
    b"GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)
_SMALL = replace(DEFAULT_LIMITS, message_bytes=1000, ping_s=0.05, pong_s=1.5, stall_timeout_s=1.5, sweep_s=0.02)


@pytest.fixture(autouse=True, params=[None, uvloop.EventLoopPolicy()], ids=["asyncio", "uvloop"])
def on_both_loops(request: pytest.FixtureRequest) -> Iterator[None]:
    asyncio.set_event_loop_policy(request.param)
    yield
    asyncio.set_event_loop_policy(None)


class Talk:
    """An application that echoes messages at `/ws`, refuses `/ws/no`, and answers the rest as any other."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self.sockets: list[WebSocket] = []

    def takes_websocket(self, path: bytes) -> bool:
        return path.startswith(b"/ws")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = find(scope)
        if scope["path"] not in ("/ws", "/ws/flood", "/ws/breaks", "/ws/ends"):
            await echo(scope, receive, send)
            return
        try:
            socket = client.accept_websocket()
        except WebSocketExpected as error:
            await send({"type": "http.response.start", "status": error.http_status, "headers": []})
            await send({"type": "http.response.body", "body": error.message.encode()})
            return
        self.sockets.append(socket)
        try:
            while scope["path"] == "/ws":
                await socket.send(await socket.receive())
            while scope["path"] == "/ws/flood":
                await socket.send(b"x" * 100_000)
            if scope["path"] == "/ws/breaks":
                raise RuntimeError("it broke")
        except WebSocketClosedError:
            self.ended.set()


def find(scope: Scope) -> ClientStream:
    extensions = scope["extensions"]
    assert isinstance(extensions, dict)
    client = extensions[SPLICE_EXTENSION]
    assert isinstance(client, ClientStream)
    return client


@contextlib.asynccontextmanager
async def talking(limits: HttpLimits = DEFAULT_LIMITS) -> AsyncIterator[tuple[Served, Talk, aiohttp.ClientSession]]:
    app = Talk()
    async with serving(app, limits) as served, aiohttp.ClientSession(f"http://127.0.0.1:{served.port}") as session:
        yield served, app, session


def masked(first: int, payload: bytes) -> bytes:
    """One frame as a client sends it; the mask is zero, so that the bytes are what they are."""
    size = len(payload)
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
    return bytes([first]) + length + bytes(4) + payload


async def open_raw(client: RawClient, path: bytes = b"/ws") -> None:
    await client.send(_HANDSHAKE.replace(b"/ws", path) + b"\r\n")
    answer = await client.answer()
    assert (answer.status, answer.headers["sec-websocket-accept"]) == (101, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")


async def test_messages_go_both_ways_whatever_their_size() -> None:
    async with talking() as (_, app, session), session.ws_connect("/ws") as socket:
        for message in ("", "hello", "ä" * 20_000, "x" * (64 << 10)):
            await socket.send_str(message)
            assert await socket.receive_str() == message
        for data in (b"", b"\0\1", bytes(range(256)) * 250):
            await socket.send_bytes(data)
            assert await socket.receive_bytes() == data
        await socket.close()
        assert socket.close_code == 1000
        await asyncio.wait_for(app.ended.wait(), _PATIENCE_S)


async def test_what_is_sent_without_waiting_for_the_upgrade_is_heard() -> None:
    async with talking() as (served, _, _), connected(served.port) as client:
        await client.send(_HANDSHAKE + b"\r\n" + masked(0x81, b"early") + masked(0x89, b"p"))
        assert (await client.answer()).status == 101
        assert await client.reader.readexactly(10) == b"\x8a\x01p\x81\x05early"


async def test_a_message_in_parts_is_one_message_with_pings_between() -> None:
    async with talking() as (served, _, _), connected(served.port) as client:
        await open_raw(client)
        await client.send(masked(0x01, b"a\xc3") + masked(0x89, b"") + masked(0x80, b"\xa4b"))
        assert await client.reader.readexactly(8) == b"\x8a\x00\x81\x04a\xc3\xa4b"


BAD: list[tuple[str, bytes, int]] = [
    ("not masked", b"\x81\x01a", 1002), ("reserved bits", masked(0xF1, b"a"), 1002),
    ("an unknown kind", masked(0x83, b"a"), 1002), ("a broken text", masked(0x81, b"\xff\xfe"), 1007),
    ("a long ping", masked(0x89, b"a" * 126), 1002), ("a rest of nothing", masked(0x80, b"a"), 1002),
    ("a ping in parts", masked(0x09, b"a"), 1002), ("a close of one byte", masked(0x88, b"a"), 1002),
    ("too large", masked(0x82, b"a" * 1001), 1009),
    ("too large in parts", masked(0x02, b"a" * 600) + masked(0x80, b"a" * 600), 1009),
]  # fmt: skip


@pytest.mark.parametrize(("data", "code"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
async def test_frames_that_are_none_end_the_socket_and_say_why(data: bytes, code: int) -> None:
    limits = replace(DEFAULT_LIMITS, message_bytes=1000)
    async with talking(limits) as (served, app, _), connected(served.port) as client:
        await open_raw(client)
        await client.send(data)
        head = await client.reader.readexactly(4)
        assert (head[0], int.from_bytes(head[2:], "big")) == (0x88, code)
        await asyncio.wait_for(app.ended.wait(), _PATIENCE_S)


HANDSHAKES: list[tuple[str, bytes]] = [
    ("no version", _HANDSHAKE.replace(b"Sec-WebSocket-Version: 13\r\n", b"")),
    ("another version", _HANDSHAKE.replace(b" 13", b" 8")),
    ("no key", _HANDSHAKE.replace(b"Sec-WebSocket-Key", b"X-Key")),
    ("no upgrade", GET.replace(b"/echo", b"/ws")[:-2]),
]


@pytest.mark.parametrize("head", [row[1] for row in HANDSHAKES], ids=[row[0] for row in HANDSHAKES])
async def test_what_is_no_handshake_is_answered_and_not_upgraded(head: bytes) -> None:
    async with talking() as (served, app, _), connected(served.port) as client:
        await client.send(head + b"\r\n")
        answer = await client.answer()
        assert (answer.status, b"websocket" in answer.body) == (400, True)
        assert app.sockets == []


IGNORED: list[tuple[str, bytes]] = [
    ("another path", _HANDSHAKE.replace(b"/ws", b"/echo")),
    ("another protocol", _HANDSHAKE.replace(b": websocket", b": h2c").replace(b"/ws", b"/ws/no")),
    ("POST", _HANDSHAKE.replace(b"GET", b"POST").replace(b"/ws", b"/ws/no") + b"Content-Length: 0\r\n"),
    ("with a body", _HANDSHAKE.replace(b"/ws", b"/ws/no") + b"Content-Length: 0\r\n"),
]  # fmt: skip


@pytest.mark.parametrize("head", [row[1] for row in IGNORED], ids=[row[0] for row in IGNORED])
async def test_an_offer_that_cannot_be_taken_is_not_seen(head: bytes) -> None:
    async with talking() as (served, _, _), connected(served.port) as client:
        await client.send(head + b"\r\n" + GET)
        for _ in range(2):
            answer = await client.answer()
            assert answer.status == 200
            assert "upgrade" not in dict(answer.json["headers"])  # type: ignore[call-overload]


async def test_who_is_refused_gets_an_answer_and_can_smuggle_nothing_behind_it() -> None:
    async with talking() as (served, app, _), connected(served.port) as client:
        await client.send(_HANDSHAKE.replace(b"/ws", b"/ws/no") + b"\r\n" + masked(0x81, b"hello") + GET)
        answer = await client.answer()
        assert (answer.status, answer.headers["connection"], answer.json["path"]) == (200, "close", "/ws/no")
        assert await client.is_closed() and app.sockets == []


async def test_a_client_that_takes_nothing_is_cut_off_and_others_hear_at_once() -> None:
    async with talking(_SMALL) as (served, app, session), connected(served.port, receive_buffer=4096) as slow:
        await open_raw(slow, b"/ws/flood")
        async with session.ws_connect("/ws") as socket:
            for number in range(20):
                await socket.send_str(str(number))
                assert await asyncio.wait_for(socket.receive_str(), _PATIENCE_S) == str(number)
            await asyncio.wait_for(app.ended.wait(), _PATIENCE_S)


async def test_who_answers_no_ping_is_gone_and_who_does_stays() -> None:
    async with talking(_SMALL) as (served, app, session), connected(served.port) as dead:
        await open_raw(dead)
        async with session.ws_connect("/ws") as socket:
            waiting = asyncio.create_task(socket.receive_str())  # aiohttp answers pings while somebody reads
            await asyncio.wait_for(app.ended.wait(), _PATIENCE_S)
            assert [one.is_closed for one in app.sockets] == [True, False]
            await socket.send_str("still here")
            assert await asyncio.wait_for(waiting, _PATIENCE_S) == "still here"


async def test_a_client_that_never_reads_its_pongs_fills_no_memory() -> None:
    async with talking(_SMALL) as (served, app, _), connected(served.port, receive_buffer=4096) as client:
        await open_raw(client)
        with contextlib.suppress(ConnectionError):
            while not app.ended.is_set():
                await client.send(masked(0x89, b"p" * 100) * 1000)
                (socket,) = app.sockets
                transport = socket._transport
                assert transport is None or transport.get_write_buffer_size() < 1 << 20
        await asyncio.wait_for(app.ended.wait(), _PATIENCE_S)


async def test_the_application_ends_a_socket_by_returning_or_breaking() -> None:
    async with talking() as (served, _, session):
        for path, code in (("/ws/ends", 1000), ("/ws/breaks", 1011)):
            async with session.ws_connect(path) as socket:
                assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
                assert socket.close_code == code
        assert [str(error) for error in served.errors] == ["it broke"]


async def test_a_server_that_stops_says_so_and_waits_for_nobody() -> None:
    async with talking() as (served, _, session), connected(served.port) as deaf, session.ws_connect("/ws") as polite:
        await open_raw(deaf)
        draining = asyncio.create_task(served.service.drain(_PATIENCE_S))
        assert (await polite.receive()).type is aiohttp.WSMsgType.CLOSE
        assert polite.close_code == 1001
        assert await draining is True
        assert served.service.connection_count == 0


async def test_hundreds_of_idle_sockets_leave_no_trace_when_their_clients_vanish() -> None:
    async with talking() as (served, app, _), contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connected(served.port)) for _ in range(300)]
        await asyncio.gather(*(open_raw(client) for client in clients))
        assert served.service.connection_count == 300
        for client in clients:
            client.reset()
        async with asyncio.timeout(_PATIENCE_S):
            while served.service.connection_count:  # noqa: ASYNC110 - the kernel tells, and no event of ours
                await asyncio.sleep(0.01)
        assert all(one.is_closed for one in app.sockets)


async def test_a_websocket_goes_through_tls() -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(_TLS / "first.pem", _TLS / "first-key.pem")
    service = HttpService(Talk())
    server = await asyncio.get_running_loop().create_server(service.protocol_factory, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"https://127.0.0.1:{port}/ws", ssl=False) as socket,
    ):
        await socket.send_bytes(b"y" * 60_000)
        assert await asyncio.wait_for(socket.receive_bytes(), _PATIENCE_S) == b"y" * 60_000
    server.close()
    await service.drain(0)
