"""A stand-in for Hugging Face on loopback: its API, its redirects to a store, ranges, and connections that break."""

import asyncio
import contextlib
import hashlib
import json
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

COMMIT = "c0ffee" + "0" * 34


@dataclass
class HubServer:
    """What it serves, how it misbehaves, and what it was asked."""

    files: Mapping[str, bytes]
    drop_every: int = 0
    """Break the connection after so many bytes."""
    token: str = ""
    ranges: bool = True
    commit: str = COMMIT
    address: str = ""
    asked: list[str] = field(default_factory=list)
    authorized: list[str] = field(default_factory=list)
    """Paths that a token was sent to."""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            path = head.split(" ")[1]
            self.asked.append(path)
            if "authorization:" in head.lower():
                self.authorized.append(path)
            self._route(writer, path, head)
            await writer.drain()
        writer.close()

    def _route(self, writer: asyncio.StreamWriter, path: str, head: str) -> None:
        if self.token and not path.startswith("/store/") and f"Bearer {self.token}" not in head:
            _send(writer, "401 Unauthorized", b"{}")
        elif path.startswith("/api/models/org/model/revision/"):
            _send(writer, "200 OK", self._api())
        elif path.startswith("/org/model/resolve/"):
            _send(writer, "302 Found", b"", f"Location: /store/{path.split('/', 5)[5]}\r\n")
        elif path.startswith(("/store/", "/archives/")) and path.split("/", 2)[2] in self.files:
            self._send_file(writer, self.files[path.split("/", 2)[2]], head)
        else:
            _send(writer, "404 Not Found", b"{}")

    def _api(self) -> bytes:
        siblings = []
        for name, data in self.files.items():
            git = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
            entry: dict[str, object] = {"rfilename": name, "size": len(data), "blobId": git}
            if name.endswith((".safetensors", ".gguf")):
                entry["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
            siblings.append(entry)
        return json.dumps({"sha": self.commit, "siblings": siblings, "gated": False}).encode()

    def _send_file(self, writer: asyncio.StreamWriter, data: bytes, head: str) -> None:
        asked = re.search(r"(?im)^range: bytes=(\d+)-", head)
        start = int(asked[1]) if asked and self.ranges else 0
        if start and start >= len(data):
            _send(writer, "416 Range Not Satisfiable", b"")
            return
        rest = data[start:]
        status = "206 Partial Content" if start else "200 OK"
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(rest)}\r\n\r\n".encode())
        writer.write(rest[: self.drop_every] if self.drop_every else rest)


@contextlib.asynccontextmanager
async def serving(server: HubServer) -> AsyncIterator[HubServer]:
    """The server, with its address filled in."""
    listening = await asyncio.start_server(server.answer, "127.0.0.1", 0)
    async with listening:
        server.address = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        yield server


def _send(writer: asyncio.StreamWriter, status: str, body: bytes, more: str = "") -> None:
    writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{more}\r\n".encode() + body)
