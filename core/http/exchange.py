"""One request to an upstream for those who read the answer themselves: translation, and servers without splice.

    async with exchange(target, method=b"POST", path=b"/v1/chat/completions", headers=headers, body=body) as answer:
        answer.status, answer.headers
        async for data in answer:       # decoded body, as it comes
            ...

Leaving the block before the end, cancelled or not, closes the upstream at once. The caller owns the deadline of the
whole; how long the upstream may be silent can be given.
"""

import asyncio
from collections import deque
from types import TracebackType
from typing import Protocol, Self

from core.errors import DependencyError
from core.http.asgi import Headers
from core.http.framing import ResponseFraming
from core.http.heads import foreign_lines, request_head, upstream_lines
from core.http.patience import LAST_CHUNK, frame
from core.http.pool import Target
from core.http.repeat import RememberedResponse
from core.http.upstream import UpstreamConnection
from core.http.verdict import Ended


class ExchangeError(DependencyError):
    """The upstream gave no answer, or not a whole one."""

    code = "upstream_failed"

    def __init__(self, target: Target, ended: Ended, detail: str) -> None:
        super().__init__(f"{target.name}: {ended.value.replace('_', ' ')}{': ' + detail if detail else ''}")
        self.ended = ended
        self.detail = detail


class Rest(Protocol):
    """A request's body that is still arriving (`core.http.incoming.Incoming`)."""

    length: int | None
    """What is left of it, in bytes; None: not known."""

    async def read(self) -> bytes:
        """The next part; empty at the end."""


class exchange:  # noqa: N801 - used like a function, as `asyncio.timeout` is
    """See the module. Raises: ExchangeError, on entering and while reading; what reading `rest` raises, too.

    `added` are ready header lines, each ended by CR LF. `rest` follows `body` while it arrives: then nothing is ever
    asked twice, and a connection of its own is used.
    """

    def __init__(  # noqa: PLR0913 - what a request is made of
        self,
        target: Target,
        *,
        method: bytes,
        path: bytes,
        headers: Headers,
        body: bytes,
        added: bytes = b"",
        rest: Rest | None = None,
        first_byte_timeout_s: float | None = None,
        between_bytes_timeout_s: float | None = None,
    ) -> None:
        self.status = 0
        # Who is still sending cannot be answered yet, and how fast a client sends is not the upstream's doing.
        self._first_byte_timeout_s = first_byte_timeout_s if rest is None else None
        self._between_bytes_timeout_s = between_bytes_timeout_s
        self.headers: Headers = []
        self.decodes = True
        self._target = target
        self._head_only = method == b"HEAD"
        length = len(body) if rest is None or rest.length is None else len(body) + rest.length
        lines = upstream_lines(headers) + added
        path = target.path_of(path)
        if target.is_foreign:
            lines = foreign_lines(lines)
        if rest is not None and rest.length is None:
            self._head = b"%b %b HTTP/1.1\r\n%b%btransfer-encoding: chunked\r\n\r\n" % (
                method,
                path,
                target.fixed,
                lines,
            )
            self._body = frame(body, chunked=bool(body))
        else:
            self._head = request_head(method, path, lines, fixed=target.fixed, length=length)
            self._body = body
        self._rest = rest
        self._sending: asyncio.Task[None] | None = None
        self._broken: Exception | None = None
        self._connection: UpstreamConnection | None = None
        self._changed = asyncio.Event()
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._limit_bytes = target.queue_bytes
        self._is_over = False
        self._failure: tuple[Ended, str, bool] | None = None

    async def __aenter__(self) -> Self:
        try:
            connection = self._target.take_idle() if self._rest is None else None
            if connection is not None and await self._try(connection):
                return self
            if not await self._try(await self._connect()):
                raise self._error()
        except BaseException:
            self._let_go()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._let_go()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while not self._queue:
            if self._failure is not None:
                raise self._error()
            if self._is_over:
                raise StopAsyncIteration
            self._changed.clear()
            await self._wait(self._between_bytes_timeout_s, Ended.BETWEEN_BYTES_TIMEOUT)
        data = self._queue.popleft()
        self._queued_bytes -= len(data)
        if self._connection is not None and self._queued_bytes <= self._limit_bytes // 2:
            self._connection.resume()
        return data

    async def read(self, limit_bytes: int) -> bytes:
        """The whole body. Raises: ExchangeError, also when it is longer than `limit_bytes`."""
        parts: list[bytes] = []
        size = 0
        async for data in self:
            size += len(data)
            if size > limit_bytes:
                raise ExchangeError(self._target, Ended.MALFORMED, f"an answer of more than {limit_bytes} bytes")
            parts.append(data)
        return b"".join(parts)

    # core.http.upstream.Sink

    def head(self, connection: UpstreamConnection, framing: ResponseFraming) -> bool:
        self.status = framing.status
        self.headers = framing.headers
        self._changed.set()
        return True

    def whole(self, remembered: RememberedResponse, digits: bytes, body: bytes) -> None:
        """Never called: this sink decodes."""

    def data(self, data: bytes) -> None:
        if not data:
            return
        self._queue.append(data)
        self._queued_bytes += len(data)
        if self._queued_bytes > self._limit_bytes and self._connection is not None:
            self._connection.pause()
        self._changed.set()

    def complete(self) -> None:
        self._connection = None
        self._is_over = True
        self._changed.set()

    def failed(self, ended: Ended, detail: str, reused: bool) -> None:
        self._connection = None
        self._failure = (ended, detail, reused)
        self._changed.set()

    async def _try(self, connection: UpstreamConnection) -> bool:
        """False: the connection was stale, and nothing was lost."""
        self._connection = connection
        connection.begin(self, self._head, self._body, head_only=self._head_only)
        if self._rest is not None:
            connection.is_sending = True
            self._sending = asyncio.get_running_loop().create_task(self._send(connection, self._rest))
        while not self.status and self._failure is None:
            self._changed.clear()
            await self._wait(self._first_byte_timeout_s, Ended.FIRST_BYTE_TIMEOUT)
        if self._failure is None:
            return True
        if not self._failure[2]:
            raise self._error()
        self._failure = None
        return False

    async def _wait(self, timeout_s: float | None, ended: Ended) -> None:
        """For the upstream to say something. Raises: ExchangeError when it does not."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            raise ExchangeError(self._target, ended, f"nothing for {timeout_s:g} s") from None

    async def _connect(self) -> UpstreamConnection:
        found: asyncio.Future[tuple[UpstreamConnection | None, str]] = asyncio.get_running_loop().create_future()
        connecting = self._target.connect(lambda connection, why: found.set_result((connection, why)))
        try:
            connection, why = await found
        except asyncio.CancelledError:
            connecting.cancel()
            raise
        if connection is None:
            raise ExchangeError(self._target, Ended.CONNECT_FAILED, why)
        return connection

    async def _send(self, connection: UpstreamConnection, rest: "Rest") -> None:
        is_chunked = rest.length is None
        try:
            while part := await rest.read():
                if not await connection.send(frame(part, chunked=is_chunked)):
                    return
            if not is_chunked or await connection.send(LAST_CHUNK):
                connection.is_sending = False
        except Exception as error:  # noqa: BLE001 - told to whoever waits for the answer
            self._broken = error
            connection.abort(Ended.CLIENT_GONE)

    def _let_go(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
        if self._connection is not None:
            self._connection.abort(Ended.CLIENT_GONE)

    def _error(self) -> Exception:
        if self._broken is not None:
            return self._broken
        ended, detail, _ = self._failure or (Ended.CLOSED_EARLY, "closed", False)
        return ExchangeError(self._target, ended, detail)
