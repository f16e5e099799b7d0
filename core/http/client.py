"""The HTTP client of our programs: health probes, the daemon's socket, later peers and downloads.

A thin wrapper of aiohttp that gives every call a deadline and a bound, and translates its errors once. The relay
of inference requests does not come this way: that is `core/http/splice.py`.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import aiohttp

from core.errors import BugError, DependencyError, TimedOutError, UnavailableError

_MAX_LINE_BYTES = 16 << 20


class Unreachable(UnavailableError):
    """Nobody listens there, or the connection broke."""

    code = "unreachable"


class AnswerTimedOut(TimedOutError):
    """Connected, but no answer in time."""

    code = "answer_timed_out"


class AnswerTooLarge(DependencyError):
    """More than the caller allows."""

    code = "answer_too_large"


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpClient:
    """A client for one base URL over TCP, or over a unix socket (then URLs are paths).

    Use as an async context manager. It keeps connections alive and never follows redirects.
    """

    def __init__(self, *, unix_socket: Path | None = None, base_url: str = "") -> None:
        self._unix_socket = unix_socket
        self._base = base_url or ("http://localhost" if unix_socket else "")
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "HttpClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def fetch(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        timeout_s: float,
        limit_bytes: int = 1 << 20,
        verify: bool = True,
    ) -> Reply:
        """One request, its whole answer. Raises: Unreachable, AnswerTimedOut, AnswerTooLarge.

        `verify`: whether an `https` certificate must be good; not where the other end is this very machine.
        """
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        async with self._translated(url, timeout_s), self._open(method, url, headers, body, timeout, verify) as answer:
            parts: list[bytes] = []
            size = 0
            async for part in answer.content.iter_any():
                parts.append(part)
                size += len(part)
                if size > limit_bytes:
                    raise AnswerTooLarge(f"{url} answered more than {limit_bytes} bytes")
            return Reply(answer.status, dict(answer.headers), b"".join(parts))
        raise BugError("an answer ended without an end")  # the context manager raised or the body returned

    @asynccontextmanager
    async def stream(
        self, method: str, url: str, *, body: bytes = b"", connect_timeout_s: float = 5.0
    ) -> AsyncIterator["LineStream"]:
        """An answer that goes on: its status at once, its lines as they come. No limit on the whole."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout_s)
        async with (
            self._translated(url, connect_timeout_s),
            self._open(method, url, None, body, timeout) as answer,
        ):
            yield LineStream(answer)

    @asynccontextmanager
    async def download(
        self, url: str, *, headers: Mapping[str, str], silence_s: float = 60.0
    ) -> AsyncIterator["ByteStream"]:
        """A large answer, in pieces. Ends with AnswerTimedOut when nothing comes for `silence_s`."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=30.0, sock_read=silence_s)
        async with self._translated(url, silence_s), self._open("GET", url, headers, b"", timeout) as answer:
            yield ByteStream(answer)

    @asynccontextmanager
    async def messages(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        connect_timeout_s: float = 5.0,
        heartbeat_s: float = 20.0,
        limit_bytes: int = 64 << 20,
    ) -> AsyncIterator["MessageStream"]:
        """A websocket's messages. A peer that answers no ping within the heartbeat is gone: `Unreachable`."""
        async with self._translated(url, connect_timeout_s):
            async with asyncio.timeout(connect_timeout_s):
                sock = await self._connected().ws_connect(
                    url if "://" in url else self._base + url,
                    headers=headers,
                    heartbeat=heartbeat_s,
                    max_msg_size=limit_bytes,
                )
            async with sock:
                yield MessageStream(sock)

    def _open(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None,
        body: bytes,
        timeout: aiohttp.ClientTimeout,
        verify: bool = True,
    ) -> "aiohttp.client._RequestContextManager":
        return self._connected().request(
            method,
            url if "://" in url else self._base + url,
            headers=headers,
            data=body or None,
            timeout=timeout,
            allow_redirects=False,
            ssl=verify,
        )

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector: aiohttp.BaseConnector = (
                aiohttp.UnixConnector(path=str(self._unix_socket), limit=0)
                if self._unix_socket
                else aiohttp.TCPConnector(limit=0, keepalive_timeout=15)
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                auto_decompress=True,
                cookie_jar=aiohttp.DummyCookieJar(),
                read_bufsize=_MAX_LINE_BYTES,
            )
        return self._session

    @asynccontextmanager
    async def _translated(self, url: str, timeout_s: float) -> AsyncIterator[None]:
        where = f"{self._unix_socket or self._base}{url if self._base else ''}" if self._unix_socket else url
        try:
            yield
        except asyncio.TimeoutError as error:  # noqa: UP041 - aiohttp's own subclasses it by this name
            raise AnswerTimedOut(f"{where} did not answer within {timeout_s:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise Unreachable(f"{where}: {reason}") from error


class LineStream:
    """The lines of an answer that is still being written."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer
        self.status = answer.status

    async def read_all(self) -> bytes:
        """The rest of the body at once (an error's)."""
        return await self._answer.read()

    async def lines(self) -> AsyncIterator[bytes]:
        """Each line without its newline; ends with the answer."""
        async for line in self._answer.content:
            yield line.rstrip(b"\n")


class MessageStream:
    """The messages of a websocket."""

    def __init__(self, sock: "aiohttp.ClientWebSocketResponse[bool]") -> None:
        self._sock = sock

    async def messages(self) -> AsyncIterator[str | bytes]:
        """Each message, as the peer meant it: text, or bytes. Ends when the peer closes."""
        async for message in self._sock:
            if message.type is aiohttp.WSMsgType.TEXT:
                yield str(message.data)
            elif message.type is aiohttp.WSMsgType.BINARY:
                yield bytes(message.data)
            elif message.type is aiohttp.WSMsgType.ERROR:
                raise aiohttp.ClientError(str(self._sock.exception()))

    @property
    def close_code(self) -> int | None:
        """How the peer, or we, ended it; None while it is open."""
        return self._sock.close_code

    async def say(self, text: str) -> None:
        """One text message."""
        await self._sock.send_str(text)


class ByteStream:
    """The bytes of an answer that is still coming."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer
        self.status = answer.status
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in answer.headers.items()}

    async def chunks(self) -> AsyncIterator[bytes]:
        """As they come."""
        async for chunk in self._answer.content.iter_chunked(1 << 20):
            yield chunk
