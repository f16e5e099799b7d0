"""Hearing of changes in a folder from the kernel (inotify(7)), on the event loop and without a library.

A file that is replaced by a rename is another inode, so it is the folder that is watched and not the file.
"""

import asyncio
import ctypes
import os
import struct
from collections.abc import AsyncIterator
from pathlib import Path

from core.files import storage_error

_IN_CLOSE_WRITE, _IN_MOVED_FROM, _IN_MOVED_TO, _IN_CREATE, _IN_DELETE = 0x8, 0x40, 0x80, 0x100, 0x200
_MASK = _IN_CLOSE_WRITE | _IN_MOVED_FROM | _IN_MOVED_TO | _IN_CREATE | _IN_DELETE
_HEADER = struct.Struct("iIII")
_libc = ctypes.CDLL(None, use_errno=True)


def parse_events(data: bytes) -> set[str]:
    """Names of the files that events are about; `struct inotify_event` is a header and a name padded with NULs."""
    names: set[str] = set()
    at = 0
    while at + _HEADER.size <= len(data):
        _, _, _, length = _HEADER.unpack_from(data, at)
        name = data[at + _HEADER.size : at + _HEADER.size + length].rstrip(b"\0")
        names.add(os.fsdecode(name))
        at += _HEADER.size + length
    return names


async def watch_directory(path: Path) -> AsyncIterator[set[str]]:
    """Names of files in `path` that changed, as they change; several at once when they come together.

    Raises: StorageError when the folder cannot be watched.
    """
    descriptor = _open(path)
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(descriptor, readable.set)
    try:
        while True:
            await readable.wait()
            readable.clear()
            try:
                yield parse_events(os.read(descriptor, 1 << 16))
            except BlockingIOError:
                continue
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _open(path: Path) -> int:
    descriptor = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if descriptor < 0:
        raise storage_error(path, OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno())))
    if _libc.inotify_add_watch(descriptor, os.fsencode(path), _MASK) < 0:
        number = ctypes.get_errno()
        os.close(descriptor)
        raise storage_error(path, OSError(number, os.strerror(number)))
    return int(descriptor)
