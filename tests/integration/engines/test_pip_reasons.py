"""Why an index gives nothing, asked of the real pip and a real index on loopback."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from engines.packages import Packages
from engines.pypi import Wheel, WheelMissing, WheelUnfit, fetch_wheel

FILES = {
    "machines": ["machines-1.0-cp27-cp27m-win_amd64.whl"],
    "version": ["version-2.0-py3-none-any.whl"],
}


@pytest.fixture(autouse=True)
def _no_other_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """The developer's own index is not asked."""
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)


@contextlib.asynccontextmanager
async def an_index() -> AsyncIterator[str]:
    """The address of one that knows `FILES`, and lets nobody see `closed`."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            project = head.split(" ")[1].strip("/").split("/")[-1]
            status = "200 OK" if project in FILES else "401 No" if project == "closed" else "404 Not Found"
            links = "".join(f'<a href="/f/{name}">{name}</a>' for name in FILES.get(project, []))
            body = f"<!DOCTYPE html><html><body>{links}</body></html>"
            headers = f"Content-Type: text/html\r\nContent-Length: {len(body)}\r\nConnection: close"
            writer.write(f"HTTP/1.1 {status}\r\n{headers}\r\n\r\n{body}".encode())
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/simple"


async def fail(name: str, packages: Packages, into: Path) -> WheelMissing:
    with pytest.raises(WheelMissing) as caught:
        await fetch_wheel(Wheel(name, "1.0"), into, packages=packages, progress=lambda event: None)
    return caught.value


@pytest.mark.parametrize(
    ("name", "said", "hint"),
    [
        ("nosuch", "knows no package nosuch (404)", "that of an index"),
        ("machines", "for other machines alone: cp27-cp27m-win_amd64", "llmgw engine plan"),
        ("version", "has no version 1.0, but 2.0", "bring it up to date"),
        ("closed", "refuses to say whether it has closed 1.0 (401)", "password"),
    ],
)
async def test_an_index_is_told_apart_from_what_it_lacks(name: str, said: str, hint: str, tmp_path: Path) -> None:
    async with an_index() as address:
        error = await fail(name, Packages(index=address), tmp_path)

    assert said in error.message and hint in error.hint
    assert isinstance(error, WheelUnfit) is (name == "machines")


async def test_a_folder_with_wheels_for_other_machines_says_so(tmp_path: Path) -> None:
    (tmp_path / "wheels-here").mkdir()
    (tmp_path / "wheels-here/machines-1.0-cp27-cp27m-win_amd64.whl").write_bytes(b"")

    error = await fail("machines", Packages(folder=tmp_path / "wheels-here"), tmp_path)
    other = await fail("nosuch", Packages(folder=tmp_path / "wheels-here"), tmp_path)

    assert error.code == "package_unfit" and "cp27-cp27m-win_amd64" in error.message
    assert other.code == "package_unavailable" and "has no nosuch 1.0 for this machine" in other.message
