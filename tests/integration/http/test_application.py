"""What any ASGI application can rely on, over TCP and over a unix socket."""

import asyncio
import os
import socket
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from core.http.asgi import PEER_EXTENSION, ClientDisconnectedError, Peer, Receive, Scope, Send
from core.http.limits import DEFAULT_LIMITS
from core.http.server import HttpService, serve_unix
from tests.integration.http.harness import GET, RawClient, connected, echo, post, serving
from tests.patience import SOON_S

_START = {"type": "http.response.start", "status": 200, "headers": []}


async def test_a_request_is_cancelled_when_its_client_leaves() -> None:
    waiting, cancelled = asyncio.Event(), asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with serving(app) as served, connected(served.port) as client:
        await client.send(GET)
        await waiting.wait()
        client.reset()
        async with asyncio.timeout(SOON_S):
            await cancelled.wait()
        assert served.errors == []


async def test_an_application_may_hear_of_the_leaving_instead() -> None:
    heard = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        waiting.set()
        assert (await receive())["type"] == "http.disconnect"
        with pytest.raises(ClientDisconnectedError):
            await send(dict(_START))
        heard.set()

    waiting = asyncio.Event()
    service = HttpService(app, cancel_on_disconnect=False)
    left, right = socket.socketpair()
    loop = asyncio.get_running_loop()
    await loop.connect_accepted_socket(service.protocol_factory, right)
    left.send(GET)
    await waiting.wait()
    left.close()
    async with asyncio.timeout(SOON_S):
        await heard.wait()
    await service.drain(1)


async def test_a_slow_reader_holds_the_application_back() -> None:
    sent = 0

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal sent
        await receive()
        await send(dict(_START))
        for _ in range(4000):
            await send({"type": "http.response.body", "body": b"x" * 10_000, "more_body": True})
            sent += 10_000
        await send({"type": "http.response.body", "body": b""})

    async with serving(app) as served, connected(served.port, receive_buffer=4096) as client:
        await client.send(GET)
        before = -1
        while sent != before:  # until nothing moves any more
            before = sent
            await asyncio.sleep(0.1)
        assert sent < 12_000_000
        answer = await client.answer()
        assert (len(answer.body), answer.complete) == (40_000_000, True)


async def test_a_client_that_reads_slowly_and_steadily_is_waited_for() -> None:
    """One large write takes longer than the limit, which is about standing still."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send(dict(_START))
        await send({"type": "http.response.body", "body": b"x" * 20_000_000})

    limits = replace(DEFAULT_LIMITS, stall_timeout_s=1.0, sweep_s=0.05)
    async with serving(app, limits) as served, connected(served.port, receive_buffer=4096) as client:
        await client.send(GET)
        read = 0
        while read < 20_000_000:
            piece = await client.reader.read(400_000)
            assert piece
            read += len(piece)
            await asyncio.sleep(0.03)


BROKEN = ["before the head", "after the head", "inside the body", "without an answer", "half an answer"]


@pytest.mark.parametrize("where", BROKEN)
async def test_an_application_that_fails_is_never_taken_for_one_that_answered(where: str) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        if where == "before the head":
            raise LookupError(where)
        if where == "without an answer":
            return
        await send(dict(_START))
        if where == "after the head":
            raise LookupError(where)
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        if where == "inside the body":
            raise LookupError(where)

    async with serving(app) as served, connected(served.port) as client:
        await client.send(GET)
        answer = await client.answer()
        if "body" in where or where == "half an answer":
            assert (answer.status, answer.body, answer.complete) == (200, b"begun", False)
        else:
            assert (answer.status, answer.json["error"]) == (
                500,
                {"message": "the request could not be processed", "type": "api_error", "code": "internal_error"},
            )
        assert await client.is_closed()
        assert [str(error) for error in served.errors] == ([where] if "head" in where or "body" in where else [])


@pytest.mark.parametrize("value", [b"a\r\nx: y", b"a\nb", b"a\rb"])
async def test_a_line_break_in_a_response_s_field_is_a_bug_and_not_a_second_field(value: bytes) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x", value)]})
        await send({"type": "http.response.body", "body": b""})

    async with serving(app) as served, connected(served.port) as client:
        await client.send(GET)
        assert (await client.answer()).status == 500
        assert [type(error) for error in served.errors] == [ValueError]


async def test_an_answer_without_length_is_chunked_for_those_who_know_chunks() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send(dict(_START))
        await send({"type": "http.response.body", "body": b"ab", "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        await send({"type": "http.response.body", "body": b"c"})

    async with serving(app) as served:
        async with connected(served.port) as client:
            for _ in range(2):
                await client.send(GET)
                assert (await client.answer()).body == b"abc"
        async with connected(served.port) as client:
            await client.send(b"GET / HTTP/1.0\r\n\r\n")
            answer = await client.answer()
            assert (answer.body, "transfer-encoding" in answer.headers) == (b"abc", False)


@pytest.mark.parametrize("status", [204, 304])
async def test_a_status_without_a_body_has_none(status: int) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async with serving(app) as served, connected(served.port) as client:
        for _ in range(2):
            await client.send(GET)
            assert list((await client.answer()).headers) == ["date"]


async def test_the_last_answer_of_a_drain_says_so() -> None:
    reached, go = asyncio.Event(), asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        reached.set()
        await go.wait()
        await echo(scope, receive, send)

    async with serving(app) as served, connected(served.port) as client:
        await client.send(GET)
        await reached.wait()
        draining = asyncio.ensure_future(served.service.drain(5))
        await asyncio.sleep(0)
        go.set()
        assert (await client.answer()).headers["connection"] == "close"
        assert await draining


async def test_a_unix_socket_tells_who_is_at_its_other_end(tmp_path: Path) -> None:
    seen: list[object] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        extensions = scope["extensions"]
        assert isinstance(extensions, dict)
        seen.append(extensions[PEER_EXTENSION])
        await echo(scope, receive, send)

    service = HttpService(app)
    path = tmp_path / "s"
    server = await serve_unix(service, path, mode=0o620)
    assert stat.S_IMODE(path.stat().st_mode) == 0o620
    reader, writer = await asyncio.open_unix_connection(str(path))
    client = RawClient(reader, writer)
    for _ in range(2):
        await client.send(post("/x", b"abc"))
        assert (await client.answer()).json["begin"] == "abc"
    assert seen == [Peer(os.getpid(), os.getuid(), os.getgid())] * 2
    writer.close()
    server.close()
    assert await service.drain(5)


async def test_a_unix_socket_that_a_crash_left_is_replaced_and_a_file_is_not(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "left"))
    service = HttpService(echo)
    server = await serve_unix(service, tmp_path / "left", mode=0o600)
    server.close()
    (tmp_path / "file").write_text("precious")
    with pytest.raises(FileExistsError):
        await serve_unix(service, tmp_path / "file", mode=0o600)
    assert (tmp_path / "file").read_text() == "precious"
