"""Hearing of changes in a folder from the kernel (inotify(7)), on the event loop and without a library.

A file that is replaced by a rename is another inode, so it is the folder that is watched and not the file. One that is
written in place is half written until its writer closes it, so the beginnings of writing are heard, too.
"""

import asyncio
import ctypes
import os
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from core.files import storage_error

_IN_MODIFY, _IN_CLOSE_WRITE, _IN_MOVED_FROM, _IN_MOVED_TO, _IN_CREATE, _IN_DELETE = 0x2, 0x8, 0x40, 0x80, 0x100, 0x200
_IN_Q_OVERFLOW = 0x4000
_MASK = _IN_MODIFY | _IN_CLOSE_WRITE | _IN_MOVED_FROM | _IN_MOVED_TO | _IN_CREATE | _IN_DELETE
_HEADER = struct.Struct("iIII")
_libc = ctypes.CDLL(None, use_errno=True)


class Change(Enum):
    """What happened to a file of the folder."""

    CREATED = auto()
    """There was none of that name. A file (no link) has a writer now, who will close it."""
    WRITTEN = auto()
    """Somebody writes it, and is not done."""
    CLOSED = auto()
    """Who could write it has closed it."""
    REPLACED = auto()
    """It came or went as a whole: by a rename or a removal."""
    LOST = auto()
    """The kernel dropped events: anything may have happened to any file."""


_CHANGES = {
    _IN_CREATE: Change.CREATED,
    _IN_MODIFY: Change.WRITTEN,
    _IN_CLOSE_WRITE: Change.CLOSED,
    _IN_MOVED_FROM: Change.REPLACED,
    _IN_MOVED_TO: Change.REPLACED,
    _IN_DELETE: Change.REPLACED,
    _IN_Q_OVERFLOW: Change.LOST,
}


@dataclass(frozen=True, slots=True)
class Event:
    """A change and the name of the file in its folder; empty for `LOST`."""

    name: str
    change: Change


def parse_events(data: bytes) -> list[Event]:
    """In their order, without those that are no `Change`.

    `struct inotify_event` is a header and a name padded with NULs.
    """
    events: list[Event] = []
    at = 0
    while at + _HEADER.size <= len(data):
        _, mask, _, length = _HEADER.unpack_from(data, at)
        name = data[at + _HEADER.size : at + _HEADER.size + length].rstrip(b"\0")
        events.extend(Event(os.fsdecode(name), change) for bit, change in _CHANGES.items() if mask & bit)
        at += _HEADER.size + length
    return events


async def watch_directory(path: Path) -> AsyncIterator[list[Event]]:
    """What changes in `path`, as it does; several at once when they come together.

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
