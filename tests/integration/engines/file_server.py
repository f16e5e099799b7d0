"""What servers of files on loopback have in common: one answer a connection, ranges, and connections that break."""

import asyncio
import contextlib
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TypeVar


@dataclass(kw_only=True)
class FileServer(ABC):
    """How it misbehaves, and what it was asked."""

    drop_every: int = 0
    """Break the connection after so many bytes of a file."""
    ranges: bool = True
    address: str = ""
    asked: list[str] = field(default_factory=list)
    authorized: list[str] = field(default_factory=list)
    """Paths that a token was sent to."""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            path = self.read_path(head.split(" ")[1])
            self.asked.append(path)
            if "authorization:" in head.lower():
                self.authorized.append(path)
            writer.write(self.reply(path, head))
            await writer.drain()
        writer.close()

    def read_path(self, target: str) -> str:
        """The path that is meant, of a request's target."""
        return target

    @abstractmethod
    def reply(self, path: str, head: str) -> bytes:
        """The whole answer."""

    def file(self, data: bytes, head: str, kind: str = "application/octet-stream") -> bytes:
        """The answer with a file in it, from where the request wants it on, as far as it goes."""
        asked = re.search(r"(?im)^range: bytes=(\d+)-", head) if self.ranges else None
        start = int(asked[1]) if asked else 0
        if start and start >= len(data):
            return message("416 Range Not Satisfiable", b"")
        reply = message("206 Partial Content" if asked else "200 OK", data[start:], kind=kind)
        return reply[: len(reply) - len(data[start:]) + self.drop_every] if self.drop_every else reply


Server = TypeVar("Server", bound=FileServer)


@contextlib.asynccontextmanager
async def serving(server: Server) -> AsyncIterator[Server]:
    """The server, with its address filled in."""
    listening = await asyncio.start_server(server.answer, "127.0.0.1", 0)
    async with listening:
        server.address = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        yield server


def message(status: str, body: bytes, more: str = "", *, kind: str = "application/octet-stream") -> bytes:
    """A response; `more` are header lines, each with its end."""
    fields = f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n{more}"
    return f"HTTP/1.1 {status}\r\n{fields}\r\n".encode() + body
