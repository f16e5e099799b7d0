"""A web server on loopback that gives a folder out as it is, lists folders as pages, and misbehaves when it is told."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, unquote


@dataclass
class MirrorServer:
    """What it serves, how it misbehaves, and what it was asked."""

    folder: Path
    lists: bool = True
    """Whether it lists a folder; otherwise it gives the folder's `index.html`."""
    drop_every: int = 0
    """Break the connection after so many bytes of a file."""
    garbage: bytes = b""
    """Said instead of every answer."""
    address: str = ""
    asked: list[str] = field(default_factory=list)
    authorized: list[str] = field(default_factory=list)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            path = unquote(head.split(" ")[1].partition("?")[0])
            self.asked.append(path)
            if "authorization:" in head.lower():
                self.authorized.append(path)
            writer.write(self.garbage or self._reply(path, head))
            await writer.drain()
        writer.close()

    def _reply(self, path: str, head: str) -> bytes:
        place = self.folder / path.strip("/")
        if place.is_dir() and not self.lists:
            place = place / "index.html"
        if place.is_dir():
            links = "".join(f'<a href="{quote(each.name)}">{each.name}</a>\n' for each in sorted(place.iterdir()))
            return _message("200 OK", f"<!DOCTYPE html><html><body>{links}</body></html>".encode(), "text/html")
        if not place.is_file():
            return _message("404 Not Found", b"nothing")
        data = place.read_bytes()
        asked = re.search(r"(?im)^range: bytes=(\d+)-", head)
        start = int(asked[1]) if asked else 0
        if start and start >= len(data):
            return _message("416 Range Not Satisfiable", b"")
        kind = "text/html" if place.name == "index.html" else "application/octet-stream"
        reply = _message("206 Partial Content" if asked else "200 OK", data[start:], kind)
        return reply[: len(reply) - len(data[start:]) + self.drop_every] if self.drop_every else reply


@contextlib.asynccontextmanager
async def serving(server: MirrorServer) -> AsyncIterator[MirrorServer]:
    """The server, with its address filled in."""
    listening = await asyncio.start_server(server.answer, "127.0.0.1", 0)
    async with listening:
        server.address = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        yield server


def _message(status: str, body: bytes, kind: str = "application/octet-stream") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body
