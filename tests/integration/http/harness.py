"""Real sockets around `core.http`: an application being served, an upstream that does as it is told, a raw client."""

import asyncio
import contextlib
import json
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from core.http.asgi import SPLICE_EXTENSION, AsgiApp, Receive, Scope, Send
from core.http.limits import DEFAULT_LIMITS, DEFAULT_POOL_LIMITS, HttpLimits, PoolLimits
from core.http.patience import EventDialect
from core.http.plan import Attempt, RelayOutcome, RelayPlan
from core.http.pool import Target, UpstreamPool
from core.http.reach import NEAR, Reach
from core.http.server import HttpService, serve_tcp
from core.http.stream import ClientStream

SSE_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
TLS_DATA = Path(__file__).resolve().parents[2] / "data" / "tls"
LAST_CHUNK = b"0\r\n\r\n"
GET = b"GET /echo HTTP/1.1\r\nHost: x\r\n\r\n"


def post(path: str, body: bytes, *fields: str) -> bytes:
    """A plain request."""
    lines = [f"POST {path} HTTP/1.1", "Host: test", f"Content-Length: {len(body)}", *fields]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


# the server


@dataclass
class Served:
    """An application behind `core.http` on a port."""

    port: int
    service: HttpService
    errors: list[BaseException]


@contextlib.asynccontextmanager
async def serving(app: AsgiApp, limits: HttpLimits = DEFAULT_LIMITS) -> AsyncIterator[Served]:
    errors: list[BaseException] = []
    unhandled: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: unhandled.append(f"{context}"))
    service = HttpService(app, limits=limits, on_error=lambda event, error: errors.append(error))
    server = await serve_tcp(service, "127.0.0.1", 0)
    try:
        yield Served(server.sockets[0].getsockname()[1], service, errors)
    finally:
        server.close()
        await service.drain(0)
    # What a callback of the loop raises reaches nobody: it must never happen.
    assert unhandled == []


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with what it was asked."""
    message = await receive()
    body = message["body"]
    assert isinstance(body, bytes)
    headers = scope["headers"]
    assert isinstance(headers, list)
    told = {
        "method": scope["method"],
        "path": scope["path"],
        "query": str(scope["query_string"]),
        "version": scope["http_version"],
        "headers": [[name.decode("latin-1"), value.decode("latin-1")] for name, value in headers],
        "size": len(body),
        "begin": body[:64].decode("latin-1"),
    }
    data = json.dumps(told).encode()
    fields = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(data))]
    await send({"type": "http.response.start", "status": 200, "headers": fields})
    await send({"type": "http.response.body", "body": data})


# the raw client


@dataclass
class Answer:
    """One response as it came over the wire."""

    status: int
    headers: dict[str, str]
    body: bytes
    complete: bool
    """Whether its framing came to an end; without length or chunks: always."""

    @property
    def json(self) -> dict[str, object]:
        told = json.loads(self.body)
        assert isinstance(told, dict)
        return told


class RawClient:
    """A connection on which any bytes can be sent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, *, head: bool = False) -> Answer:
        """Read one response. Raises: asyncio.IncompleteReadError at the end of the connection."""
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        status = int(lines[0].split()[1])
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:-2])}
        if head or status in (204, 304) or 100 <= status < 200:
            return Answer(status, headers, b"", True)
        if headers.get("transfer-encoding") == "chunked":
            return Answer(status, headers, *await self.chunks())
        if "content-length" in headers:
            size = int(headers["content-length"])
            try:
                return Answer(status, headers, await self.reader.readexactly(size), True)
            except asyncio.IncompleteReadError as error:
                return Answer(status, headers, error.partial, False)
        return Answer(status, headers, await self.reader.read(), True)

    async def chunks(self) -> tuple[bytes, bool]:
        """The rest of a chunked body, and whether it came to its end."""
        parts: list[bytes] = []
        try:
            while True:
                size = int((await self.reader.readuntil(b"\r\n")).partition(b";")[0], 16)
                data = await self.reader.readexactly(size + 2)
                if size == 0:
                    return b"".join(parts), True
                parts.append(data[:-2])
        except (asyncio.IncompleteReadError, ConnectionResetError):
            return b"".join(parts), False

    async def is_closed(self) -> bool:
        """Wait for the server to close. False: it sent something instead."""
        try:
            return await self.reader.read(1) == b""
        except ConnectionResetError:
            return True

    def reset(self) -> None:
        """Leave with a RST."""
        raw = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self.writer.transport.abort()


@contextlib.asynccontextmanager
async def connected(port: int, *, receive_buffer: int = 0) -> AsyncIterator[RawClient]:
    raw = socket.socket()
    try:
        raw.setblocking(False)
        if receive_buffer:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", port))
    except BaseException:
        raw.close()
        raise
    reader, writer = await asyncio.open_connection(sock=raw, limit=1 << 20)
    try:
        yield RawClient(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


# the upstream


class Conversation:
    """One connection to the upstream."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.closed = asyncio.Event()

    async def request(self) -> tuple[bytes, bytes]:
        """Head and body of the next request. Raises: asyncio.IncompleteReadError when there is none."""
        head = await self._reader.readuntil(b"\r\n\r\n")
        size = 0
        for line in head.split(b"\r\n"):
            if line.lower().startswith(b"content-length:"):
                size = int(line[15:])
        return head, await self._reader.readexactly(size)

    @property
    def tls(self) -> ssl.SSLObject:
        found = self._writer.get_extra_info("ssl_object")
        assert isinstance(found, ssl.SSLObject)
        return found

    async def say(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def wait_closed(self) -> None:
        """Until the other side closes."""
        with contextlib.suppress(ConnectionError):
            while await self._reader.read(65536):
                pass
        self.closed.set()

    def close(self) -> None:
        self._writer.close()

    def reset(self) -> None:
        raw = self._writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self._writer.transport.abort()


def _tls(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    if certificate is None and way.is_secure:
        certificate = TLS_DATA / "provider.pem"
    if certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


def aim(pool: UpstreamPool, name: str, port: int) -> Target:
    """A target at a scripted upstream."""
    reach = Reach(tls=True, ca_file=str(TLS_DATA / "authority.pem")) if way.is_secure else NEAR
    return pool.target(name, "127.0.0.1", port, "engine-key", reach=reach)


async def turns(count: int = 50) -> None:
    """So many turns of the event loop: what has come by now is taken, also when the machine stood still meanwhile."""
    for _ in range(count):
        await asyncio.sleep(0.001)


Script = Callable[[Conversation], Awaitable[None]]


@dataclass
class Upstream:
    """A scripted upstream."""

    port: int
    heads: list[bytes] = field(default_factory=list)
    conversations: list[Conversation] = field(default_factory=list)


@contextlib.asynccontextmanager
async def upstream(
    script: Script, *, certificate: Path | None = None, key: Path | None = None
) -> AsyncIterator[Upstream]:
    """Run `script` for every connection; what it raises because the peer left is no error.

    With a certificate (and its key, where that is in a file of its own) it is served over TLS.
    """
    tasks: set[asyncio.Task[None]] = set()
    told: Upstream

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        conversation = Conversation(reader, writer)
        told.conversations.append(conversation)
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await script(conversation)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            tasks.discard(task)
            conversation.closed.set()
            writer.close()

    server = await asyncio.start_server(converse, "127.0.0.1", 0, limit=1 << 20, ssl=_tls(certificate, key))
    told = Upstream(server.sockets[0].getsockname()[1])
    try:
        yield told
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def replying(*answers: bytes) -> Script:
    """Answer the requests of each connection with these, in turn, the last for ever."""

    async def script(conversation: Conversation) -> None:
        for number in range(1 << 30):
            await conversation.request()
            await conversation.say(answers[min(number, len(answers) - 1)])

    return script


def whole(status: int, body: bytes, *fields: str) -> bytes:
    """A response with a length."""
    lines = [f"HTTP/1.1 {status} Whatever", f"content-length: {len(body)}", *fields]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


# the relay


class ListedPlan(RelayPlan):
    """Asks targets in their order, and remembers all that it was told."""

    error_event = b'data: {"error":{"message":"broken"}}\n\n'

    def __init__(self, targets: Iterable[Target], dialect: EventDialect | None = None) -> None:
        self._targets = list(targets)
        self._dialect = dialect
        self.failed: list[Attempt] = []
        self.attempts: list[Attempt] = []
        self.outcomes: list[RelayOutcome] = []
        self.over = asyncio.Event()

    def events(self) -> EventDialect | None:
        return self._dialect

    def next_target(self, failed: Attempt | None) -> Target | None:
        if failed is not None:
            self.failed.append(failed)
        return self._targets.pop(0) if self._targets else None

    def response_headers(self, target: Target) -> bytes:
        return f"x-llmgw-target: {target.name}\r\n".encode()

    def attempt_ended(self, attempt: Attempt) -> None:
        self.attempts.append(attempt)

    def ended(self, outcome: RelayOutcome) -> None:
        self.outcomes.append(outcome)
        self.over.set()


@dataclass
class Relaying:
    """An application that relays everything to the given ports, and the plans it made."""

    port: int
    service: HttpService
    pool: UpstreamPool
    plans: list[ListedPlan]
    errors: list[BaseException]

    async def outcome(self, number: int = -1) -> RelayOutcome:
        """What became of a request that was begun."""
        plan = self.plans[number]
        await plan.over.wait()
        return plan.outcomes[0]


class RelayingApp:
    """Relays each request over the targets; answers 502 and the reason when none gave a response."""

    def __init__(self, targets: list[Target]) -> None:
        self.plans: list[ListedPlan] = []
        self.timeouts_s: tuple[float | None, float | None] = (None, None)
        """Until the first byte, and between two."""
        self.dialect: EventDialect | None = None
        """Of clients that wait for events."""
        self._targets = targets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        extensions = scope["extensions"]
        assert isinstance(extensions, dict)
        stream = extensions[SPLICE_EXTENSION]
        assert isinstance(stream, ClientStream)
        if self.dialect is not None:
            stream.expect_events(self.dialect)
        outcome = stream.failure[1] if stream.failure is not None else await stream.relay(self.make_plan())
        words = b"" if outcome is None else outcome.ended.value.encode()
        if outcome is not None and outcome.refusal is not None:
            words = b"%d %b" % (outcome.refusal.status, outcome.refusal.body)
        await send({"type": "http.response.start", "status": 299 if outcome is None else 502, "headers": []})
        await send({"type": "http.response.body", "body": words})

    def make_plan(self) -> ListedPlan:
        plan = ListedPlan(self._targets, self.dialect)
        plan.first_byte_timeout_s, plan.between_bytes_timeout_s = self.timeouts_s
        self.plans.append(plan)
        return plan


class DirectlyRelayingApp(RelayingApp):
    """The same, by `core.http.direct`."""

    def plan_directly(self, stream: ClientStream) -> RelayPlan | None:
        return self.make_plan()


@contextlib.asynccontextmanager
async def relaying(
    *ports: int,
    limits: HttpLimits = DEFAULT_LIMITS,
    pool_limits: PoolLimits = DEFAULT_POOL_LIMITS,
    app_type: type[RelayingApp] | None = None,
    timeouts_s: tuple[float | None, float | None] = (None, None),
    dialect: EventDialect | None = None,
) -> AsyncIterator[Relaying]:
    pool = UpstreamPool(pool_limits)
    targets = [aim(pool, f"t{number}", port) for number, port in enumerate(ports)]
    app = (app_type or way.app_type)(targets)
    app.timeouts_s = timeouts_s
    app.dialect = dialect
    async with serving(app, limits) as served:
        try:
            yield Relaying(served.port, served.service, pool, app.plans, served.errors)
        finally:
            await pool.close()


class _Way:
    app_type: type[RelayingApp] = RelayingApp
    is_secure = False


way = _Way()
"""How `relaying` relays; set by the fixture `both_ways` (conftest.py)."""
