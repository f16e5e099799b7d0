"""Reads a file again, from the disk and not from what memory has of it, and says its digest. Blocking.

No link inside the unit is followed: what a link leads to is not what was fetched. A file that is replaced while it is
read is read again, so that no digest is of two halves. Memory: one chunk.
"""

import errno
import hashlib
import os
import stat
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from core.weights import FileState

_CHUNK_BYTES = 1 << 20
_DROP_EVERY_BYTES = 64 << 20
_TRIES = 3


@dataclass(frozen=True, slots=True)
class Reading:
    """What is there."""

    state: FileState
    """WHOLE stands for: it was read to its end."""
    digest: str = ""
    size_bytes: int = 0
    problem: str = ""
    """In words, where it could not be read."""


class _Stopped(Exception):
    """Somebody set the stop event."""


def read_digest(
    root: Path, name: str, kind: str, on_bytes: Callable[[int], None], stop: threading.Event | None = None
) -> Reading:
    """The digest (`kind`: sha256 or git) of the file `name` below `root`. `on_bytes` hears how far it is (bytes)."""
    for _ in range(_TRIES):
        try:
            reading = _read_once(root, name, kind, on_bytes, stop or threading.Event())
        except _Stopped:
            return Reading(FileState.CHANGING, problem="stopped")
        except OSError as error:
            return _explain(error)
        if reading is not None:
            return reading
    return Reading(FileState.CHANGING, problem=f"changed {_TRIES} times while it was read")


def _read_once(
    root: Path, name: str, kind: str, on_bytes: Callable[[int], None], stop: threading.Event
) -> Reading | None:
    """None when another file stood there at the end than at the beginning. Raises: OSError, _Stopped."""
    descriptor = _open(root, name)
    try:
        before = os.fstat(descriptor)
        if not stat.S_ISREG(before.st_mode):
            return Reading(FileState.NOT_A_FILE, problem="is no ordinary file")
        digest = hashlib.sha256() if kind == "sha256" else hashlib.sha1(usedforsecurity=False)
        if kind != "sha256":
            digest.update(b"blob %d\0" % before.st_size)
        # What memory has of it may be sound where the disk is not.
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        done = dropped = 0
        while chunk := os.read(descriptor, _CHUNK_BYTES):
            if stop.is_set():
                raise _Stopped
            digest.update(chunk)
            done += len(chunk)
            if done > before.st_size:
                return None  # it grows: its end might never come
            on_bytes(done)
            if done - dropped >= _DROP_EVERY_BYTES:
                # Hundreds of GiB read once must not push out what engines have mapped.
                os.posix_fadvise(descriptor, dropped, done - dropped, os.POSIX_FADV_DONTNEED)
                dropped = done
        same = _identity(before) == _identity(os.fstat(descriptor)) == _identity_of(root, name)
        return Reading(FileState.WHOLE, digest.hexdigest(), done) if same else None
    finally:
        os.close(descriptor)


def _open(root: Path, name: str) -> int:
    """Opens component by component. Raises: OSError."""
    *folders, last = name.split("/")
    inside = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for folder in folders:
            deeper = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=inside)
            os.close(inside)
            inside = deeper
        # Non-blocking: somebody may have put a pipe there.
        return os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=inside)
    finally:
        os.close(inside)


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _identity_of(root: Path, name: str) -> tuple[int, ...]:
    try:
        descriptor = _open(root, name)
    except OSError:
        return ()
    try:
        return _identity(os.fstat(descriptor))
    finally:
        os.close(descriptor)


def _explain(error: OSError) -> Reading:
    if error.errno == errno.ENOENT:
        return Reading(FileState.MISSING, problem="is not there")
    if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO):
        return Reading(FileState.NOT_A_FILE, problem="is a link, or lies behind one, and not what was fetched")
    return Reading(FileState.UNREADABLE, problem=f"cannot be read: {error.strerror or error}")
