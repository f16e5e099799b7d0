"""A package index on loopback that serves a folder of wheels, with the day on which each was uploaded (PEP 700)."""

import asyncio
import contextlib
import hashlib
import json
import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from urllib.parse import unquote


@contextlib.asynccontextmanager
async def serving(folder: Path, uploaded: Mapping[str, str], *, drop_every: int = 0) -> AsyncIterator[str]:
    """The index's address. `drop_every`: break the connection after so many bytes of a file."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            path = unquote(head.split(" ")[1])
            if head.startswith("HEAD "):
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\n\r\n")
            elif path.startswith("/files/"):
                await _send_file(writer, folder / path.removeprefix("/files/"), head, drop_every)
            else:
                _send(writer, _page(folder, path.strip("/").split("/")[-1], uploaded))
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/simple/"


def _page(folder: Path, project: str, uploaded: Mapping[str, str]) -> bytes:
    files = [
        {
            "filename": wheel.name,
            "url": f"/files/{wheel.name}",
            "hashes": {"sha256": hashlib.sha256(wheel.read_bytes()).hexdigest()},
            "upload-time": f"{uploaded[wheel.name]}T10:00:00Z" if wheel.name in uploaded else None,
        }
        for wheel in sorted(folder.glob("*.whl"))
        if wheel.name.split("-")[0].replace("_", "-") == project
    ]
    return json.dumps({"meta": {"api-version": "1.1"}, "name": project, "files": files}).encode()


def _send(writer: asyncio.StreamWriter, body: bytes) -> None:
    kind = "application/vnd.pypi.simple.v1+json"
    writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)


async def _send_file(writer: asyncio.StreamWriter, path: Path, head: str, drop_every: int) -> None:
    data = path.read_bytes()
    asked = re.search(r"(?i)^range: bytes=(\d+)-", head, re.MULTILINE)
    start = int(asked[1]) if asked else 0
    status = f"206 Partial Content\r\nContent-Range: bytes {start}-{len(data) - 1}/{len(data)}" if asked else "200 OK"
    rest = data[start:]
    tag = hashlib.sha256(data).hexdigest()[:16]
    lines = f'HTTP/1.1 {status}\r\nAccept-Ranges: bytes\r\nETag: "{tag}"\r\nContent-Length: {len(rest)}\r\n\r\n'
    writer.write(lines.encode() + (rest[:drop_every] if drop_every else rest))
    await writer.drain()
