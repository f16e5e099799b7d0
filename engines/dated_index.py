"""A package index as it stood on a day: a small server on loopback that leaves out what was uploaded later.

An engine's environment has some two hundred packages of others. A build that was good on the day after its release is
made of the same files a year later only when nothing newer is seen; pip has no such option in the versions that Debian
ships. The index's JSON says when each file was uploaded (PEP 700). Files themselves are fetched from where they lie,
with the digest that the index gives.
"""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
from urllib.parse import urljoin

from core.errors import LlmgwError
from core.http.client import HttpClient

PYPI = "https://pypi.org/simple/"
_JSON = "application/vnd.pypi.simple.v1+json"
_NAME = re.compile(r"GET /simple/([a-z0-9][a-z0-9-]{0,100})/ HTTP/1\.[01]")
_LIMIT_BYTES = 64 << 20
_TIMEOUT_S = 60.0


def drop_later(page: bytes, base: str, date: str) -> bytes:
    """The project's page without files that were uploaded after the day. Pure.

    A file without a date stays: an index that gives none is a mirror of somebody's, who froze it. Raises: ValueError.
    """
    project = json.loads(page)
    if not isinstance(project, dict) or not isinstance(project.get("files"), list):
        raise ValueError("the index's answer is no project page")
    kept = [file for file in project["files"] if not str(file.get("upload-time") or "")[:10] > date]
    for file in kept:
        file["url"] = urljoin(base, str(file["url"]))
        # Metadata would lie beside the file under our own address otherwise.
        file.pop("core-metadata", None)
        file.pop("data-dist-info-metadata", None)
    # pip reads every version from the files; a list of later ones would only mislead.
    project.pop("versions", None)
    return json.dumps(project | {"files": kept}).encode()


@contextlib.asynccontextmanager
async def dated_index(upstream: str, date: str) -> AsyncIterator[str]:
    """Serve while the block runs; the address of the index for pip."""
    base = upstream.rstrip("/") + "/"
    async with HttpClient() as http:

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                async with asyncio.timeout(2 * _TIMEOUT_S):
                    status, body = await _page(
                        http, base, date, (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                    )
                    head = f"HTTP/1.1 {status}\r\nContent-Type: {_JSON}\r\nContent-Length: {len(body)}\r\n"
                    writer.write(f"{head}Connection: close\r\n\r\n".encode() + body)
                    await writer.drain()
            except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                pass  # pip left, or asked nothing; it tries again or says so itself
            finally:
                writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            yield f"http://127.0.0.1:{port}/simple/"


async def _page(http: HttpClient, base: str, date: str, head: str) -> tuple[str, bytes]:
    asked = _NAME.match(head)
    if asked is None:
        return "404 Not Found", b"{}"
    url = f"{base}{asked[1]}/"
    try:
        reply = await http.fetch("GET", url, headers={"Accept": _JSON}, timeout_s=_TIMEOUT_S, limit_bytes=_LIMIT_BYTES)
        if reply.status != 200:
            return f"{reply.status} Upstream", b"{}"
        return "200 OK", drop_later(reply.body, url, date)
    except (LlmgwError, ValueError, TypeError, KeyError, AttributeError):
        return "502 Bad Gateway", b"{}"
