"""Who answers at the gateway's port, with real listeners; and reads that never return."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator

import pytest

from core.errors import BugError, DependencyError, NotFoundError
from core.http.client import HttpClient
from daemon.hardware.blocking import Blocking, StillBlocked
from daemon.hardware.facts import read_gateway_port

_OURS = b'{"ok": true, "name": "llmgw", "pid": 1}'


@contextlib.asynccontextmanager
async def listener(answer: bytes | None) -> AsyncIterator[int]:
    """A port where every request gets these bytes; None: where nobody ever answers."""

    ended: list[asyncio.Event] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ended.append(end := asyncio.Event())
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await reader.readuntil(b"\r\n\r\n")
                if answer is None:
                    await reader.read()
                else:
                    writer.write(answer)
                    await writer.drain()
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            end.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
    for end in ended:
        await end.wait()


def reply(body: bytes, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (reply(_OURS), "ours"),
        (reply(b"<html>nginx</html>"), "other"),
        (reply(b'{"name": "somebody"}'), "other"),
        (reply(b"[" * 100_000), "other"),
        (reply(b"", "404 Not Found"), "other"),
        (b"SSH-2.0-OpenSSH_9.2p1\r\n", "silent"),
        (None, "silent"),
    ],
)
async def test_whoever_answers_at_the_gateways_port_is_told_apart(answer: bytes | None, state: str) -> None:
    async with HttpClient() as http, listener(answer) as port:
        assert (await read_gateway_port(http, "127.0.0.1", port)).state == state


async def test_a_port_that_nobody_holds_is_free() -> None:
    async with listener(None) as port:
        pass
    async with HttpClient() as http:
        for host in ("127.0.0.1", "0.0.0.0", ""):
            assert (await read_gateway_port(http, host, port)).state == "free"


async def test_a_read_that_never_returns_is_given_up_and_not_begun_again_until_it_did() -> None:
    gate, begun = threading.Event(), []

    def read() -> str:
        begun.append(threading.current_thread())
        gate.wait()
        return "done"

    call = Blocking("disks", read, timeout_s=0.05)
    for _ in range(3):
        with pytest.raises(StillBlocked) as caught:
            await call()
    assert len(begun) == 1 and begun[0].daemon and "disks" in caught.value.message

    gate.set()
    await asyncio.to_thread(begun[0].join)
    assert await call() == "done"


async def test_what_goes_wrong_in_the_thread_comes_out_as_an_error_of_ours() -> None:
    def raising(error: Exception) -> Blocking[None]:
        def read() -> None:
            raise error

        return Blocking("links", read)

    for error, kind in (
        (OSError(5, "I/O error"), DependencyError),
        (NotFoundError("x"), NotFoundError),
        (ValueError(), BugError),
    ):
        with pytest.raises(kind):
            await raising(error)()
