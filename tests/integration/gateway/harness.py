"""The gateway's application on a real port, over our own server, beside a daemon's socket and engines that tests steer.

    async with gateway(tmp_path, table) as (url, daemon): …

`raw_request` speaks HTTP by hand, for bodies and headers that no client library would send.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from core.api import RouteTable, RouteTarget
from core.http.limits import DEFAULT_LIMITS, HttpLimits
from core.http.server import HttpService, serve_tcp
from core.paths import Layout
from gateway.app import create_app
from gateway.snapshot import SnapshotFile
from tests.fakes.daemon_socket import FakeDaemon
from tests.fakes.upstream import FakeUpstream
from tests.patience import SOON_S
from tests.unit.gateway.tables import target

CHAT = "/v1/chat/completions"
ANSWER_S = 60.0


@dataclass(frozen=True)
class Gateway:
    """A gateway that runs in this process."""

    host: str
    port: int
    daemon: FakeDaemon
    layout: Layout

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"


@dataclass(frozen=True)
class Answer:
    """What came back, as bytes."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def error(self) -> dict[str, str]:
        """The envelope's inside."""
        error = json.loads(self.body)["error"]
        assert isinstance(error, dict)
        return error


def prepare_layout(directory: Path) -> Layout:
    layout = Layout.under(directory)
    layout.runtime.mkdir(parents=True, exist_ok=True)
    return layout


@asynccontextmanager
async def gateway(
    directory: Path, table: RouteTable | None, *, lane: str = "fast lane", limits: HttpLimits = DEFAULT_LIMITS
) -> AsyncIterator[Gateway]:
    """The application over our own server, with a daemon that serves `table`.

    `lane`: any other than the fast one leaves every request to Falcon's resources.
    """
    layout = prepare_layout(directory)
    async with (
        FakeDaemon(layout.daemon_socket, table) as daemon,
        serve_app(directory, lane=lane, limits=limits) as (host, port),
    ):
        yield Gateway(host, port, daemon, layout)


@asynccontextmanager
async def serve_app(
    directory: Path, *, lane: str = "fast lane", limits: HttpLimits = DEFAULT_LIMITS
) -> AsyncIterator[tuple[str, int]]:
    """The application alone; whether a daemon answers is the test's affair."""
    broken: list[str] = []
    app = create_app({"LLMGW_STATE": str(directory), "LLMGW_LOG_LEVEL": "debug"})
    chosen = app if lane == "fast lane" else app.app
    service = HttpService(chosen, limits=limits, on_error=lambda event, error: broken.append(f"{event}: {error!r}"))
    await service.startup()
    server = await serve_tcp(service, "127.0.0.1", 0)
    try:
        host, port = server.sockets[0].getsockname()[:2]
        yield host, port
    finally:
        server.close()
        await service.drain(0.0)
        await service.shutdown()
    assert broken == []


async def wait_saved(layout: Layout, version: int) -> RouteTable:
    """The stored table once it has this version (written by a thread, so there is no event to wait for)."""
    async with asyncio.timeout(SOON_S):
        while True:
            found = SnapshotFile(layout.gateway_state).read()
            if found is not None and found.version == version:
                return found
            await asyncio.sleep(0.01)


def target_of(upstream: FakeUpstream, id_: str = "t1", **changes: object) -> RouteTarget:
    """A ready target at a fake engine."""
    return target(id_, port=upstream.port, **changes)


def render_request(
    path: str, body: bytes = b"", headers: Mapping[str, str] | None = None, method: str = "POST"
) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "host: 127.0.0.1", f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


async def raw_request(
    address: tuple[str, int],
    path: str,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
    method: str = "POST",
    tls: ssl.SSLContext | None = None,
) -> Answer:
    """One request on a connection of its own, its whole answer."""
    async with asyncio.timeout(ANSWER_S):
        reader, writer = await asyncio.open_connection(*address, ssl=tls)
        try:
            request = render_request(path, body, {"connection": "close"} | dict(headers or {}), method)
            writer.write(request)
            return read_answer(await reader.read())
        finally:
            writer.close()


def read_answer(data: bytes) -> Answer:
    """Take an answer apart; a chunked body is joined."""
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if headers.get("transfer-encoding") == "chunked":
        body = join_chunks(body)
    return Answer(int(first.split()[1]), headers, body)


def join_chunks(data: bytes) -> bytes:
    parts = []
    while data:
        size, _, data = data.partition(b"\r\n")
        parts.append(data[: int(size, 16)])
        data = data[int(size, 16) + 2 :]
    return b"".join(parts)


def chat(model: str = "m", **fields: object) -> bytes:
    """A chat request's body."""
    return json.dumps({"model": model, "messages": [{"role": "user", "content": "hi"}]} | fields).encode()
