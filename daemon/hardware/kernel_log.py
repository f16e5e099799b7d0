"""Follows the kernel's messages: a recorded or live file, the journal, or /dev/kmsg, whichever this machine offers.

All three begin with what was said since boot, so a daemon that starts late misses nothing. The packaged daemon is
not let at /dev/kmsg (`ProtectKernelLogs=`); the journal has the same messages.
"""

import asyncio
import os
import shutil
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from core.errors import DependencyError
from units.systemd.kernel import follow_kernel

PATTERN = "NVRM: Xid"
_KMSG = Path("/dev/kmsg")
_JOURNAL = Path("/run/systemd/journal/socket")
_CHUNK_BYTES = 8192
"""At least one record of /dev/kmsg, which refuses to cut one."""

_GLANCE_S = 0.5
"""How often a plain file is looked at: the kernel has no readiness for those."""


class KernelLogUnreadable(DependencyError):
    """The kernel's messages cannot be read."""

    code = "kernel_log_unreadable"


async def follow(path: Path | None, on_line: Callable[[str], None]) -> None:
    """Hand over every message, old and new, until cancelled. Raises: DependencyError."""
    if path is None and _JOURNAL.exists() and shutil.which("journalctl"):
        lines = follow_kernel(PATTERN)
    else:
        lines = _lines(path or _KMSG)
    async for line in lines:
        on_line(line)


async def _lines(path: Path) -> AsyncIterator[str]:
    rest = b""
    async for chunk in _chunks(path):
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line.decode("utf-8", "replace")
        rest = rest[-_CHUNK_BYTES:]


async def _chunks(path: Path) -> AsyncIterator[bytes]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        hint = "the daemon needs root for the kernel's messages; without them XIDs are not seen"
        raise KernelLogUnreadable(f"{path}: {error.strerror}", hint=hint) from error
    try:
        regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        while True:
            try:
                chunk = os.read(descriptor, _CHUNK_BYTES)
            except BlockingIOError:
                chunk = b""
            except BrokenPipeError:
                continue  # /dev/kmsg overwrote what was not read yet; the next read goes on with what is left
            except OSError as error:
                raise KernelLogUnreadable(f"{path}: {error.strerror}") from error
            if chunk:
                yield chunk
            elif regular:
                await asyncio.sleep(_GLANCE_S)
            else:
                await _readable(descriptor)
    finally:
        os.close(descriptor)


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def tell() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(descriptor, tell)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)
