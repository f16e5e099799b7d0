"""The kernel's log followed as a file, as a device, and as nothing that can be read."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from daemon.hardware.kernel_log import KernelLogUnreadable, follow


@contextlib.asynccontextmanager
async def following(path: Path) -> AsyncIterator[asyncio.Queue[str]]:
    lines: asyncio.Queue[str] = asyncio.Queue()
    task = asyncio.create_task(follow(path, lines.put_nowait))
    try:
        yield lines
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_a_file_is_read_from_its_beginning_and_a_line_only_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\ntwo\nthr")
    async with following(path) as lines:
        assert [await lines.get(), await lines.get()] == ["one", "two"]
        with path.open("ab") as log:
            log.write(b"ee \xff\n")
        assert await lines.get() == "three \ufffd"
        assert lines.empty()


async def test_a_line_without_an_end_is_not_kept_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * 100_000 + b"\nafter\n")
    async with following(path) as lines:
        assert len(await lines.get()) <= 16384
        assert await lines.get() == "after"


async def test_a_device_is_waited_for_without_looking_again_and_again(tmp_path: Path) -> None:
    """A FIFO stands for /dev/kmsg: both say when there is something to read."""
    path = tmp_path / "kmsg"
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR)
    try:
        async with following(path) as lines:
            os.write(writer, b"6,1,5000000,-;NVRM: Xid (PCI:0000:19:00): 31\n")
            assert await lines.get() == "6,1,5000000,-;NVRM: Xid (PCI:0000:19:00): 31"
    finally:
        os.close(writer)


async def test_a_log_that_cannot_be_opened_says_so(tmp_path: Path) -> None:
    with pytest.raises(KernelLogUnreadable):
        await follow(tmp_path / "none", print)
