"""The units' log files: read from the end, followed, and kept below a size without losing the last line.

A service writes straight into its file (O_APPEND, mode 0600), so nothing of ours stands between: no line is lost, and
nobody blocks, when the supervisor stops or dies. The price is that the file is only bounded while the supervisor runs.
Trimming drops the head in place: the writer goes on with the same descriptor. COLLAPSE_RANGE shortens the file (ext4,
xfs), PUNCH_HOLE frees its blocks and keeps its size (tmpfs, btrfs), and where neither is there it is emptied.
"""

import asyncio
import ctypes
import os
from collections.abc import AsyncIterator
from pathlib import Path

from core.files import storage_error

CAP_BYTES = 64 << 20
KEEP_BYTES = 32 << 20

_BLOCK = 1 << 16
"""Cuts are multiples of this: the file system's block size divides it."""

_KEEP_SIZE_AND_PUNCH_HOLE = 3
_COLLAPSE_RANGE = 8
_CALM_S = 2.0
_BUSY_S = 0.05
_BUSY_BYTES = 1 << 20
_FOLLOW_S = 0.2
_OPEN_LINE_S = 1.0
"""A line that nobody has ended for so long is shown as it is: the last words of a process that died."""

_ANCHOR_BYTES = 256
_CHUNK = 1 << 16
_MAX_LINE_BYTES = 1 << 16

_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


class LogTrimmer:
    """Looks at every log now and then, more often while one grows fast."""

    def __init__(self, folder: Path, cap_bytes: int = CAP_BYTES, keep_bytes: int = KEEP_BYTES) -> None:
        self._folder = folder
        self._cap_bytes = cap_bytes
        self._keep_bytes = keep_bytes
        self._seen: dict[str, int] = {}

    async def run(self) -> None:
        """Until cancelled."""
        while True:  # noqa: ASYNC110 - files send no event that would not come with every line
            await asyncio.sleep(_BUSY_S if self.trim_all() else _CALM_S)

    def trim_all(self) -> bool:
        """Trim what is too large; True when a log grows fast."""
        is_busy = False
        for path in self._folder.glob("*.log"):
            try:
                size = path.stat().st_size
                is_busy |= size - self._seen.get(path.name, size) > _BUSY_BYTES
                trim_log(path, self._cap_bytes, self._keep_bytes)
                self._seen[path.name] = path.stat().st_size
            except FileNotFoundError:
                continue
            except OSError as error:
                raise storage_error(path, error) from error
        return is_busy


def trim_log(path: Path, cap_bytes: int, keep_bytes: int) -> bool:
    """Drop the head of a file that takes more than `cap_bytes`, leaving about `keep_bytes`. Raises: OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        stat = os.fstat(descriptor)
        if min(stat.st_size, stat.st_blocks * 512) <= cap_bytes:
            return False
        cut = (stat.st_size - keep_bytes) // _BLOCK * _BLOCK
        if _libc.fallocate(descriptor, _COLLAPSE_RANGE, 0, cut) and _libc.fallocate(
            descriptor, _KEEP_SIZE_AND_PUNCH_HOLE, 0, cut
        ):
            os.ftruncate(descriptor, 0)
        return True
    finally:
        os.close(descriptor)


def read_last_lines(path: Path, lines: int) -> list[str]:
    """The last lines, oldest first; a last line without an end counts. No file: none. Raises: StorageError."""
    try:
        with open(path, "rb") as file:
            return _decode_lines(_read_tail(file.fileno(), lines))[-lines:] if lines > 0 else []
    except FileNotFoundError:
        return []
    except OSError as error:
        raise storage_error(path, error) from error


def _read_tail(descriptor: int, lines: int) -> bytes:
    """The end of the file, with at least `lines` lines if there are as many. Stops at a hole that trimming left."""
    end = os.fstat(descriptor).st_size
    data = b""
    while end > 0 and data.count(b"\n") <= lines:
        begin = max(0, end - _CHUNK)
        chunk = os.pread(descriptor, end - begin, begin)
        data = chunk + data
        end = begin
        if b"\0" in chunk:
            break
    return data.rpartition(b"\0")[2]


def _decode_lines(data: bytes) -> list[str]:
    lines = data.decode("utf-8", "replace").split("\n")
    return lines if lines[-1] else lines[:-1]


async def follow_lines(path: Path, lines: int) -> AsyncIterator[str]:
    """The last lines, then new ones as they are completed, until the consumer stops."""
    follower = _Follower(path)
    for line in follower.begin(lines):
        yield line
    quiet_s = 0.0
    while True:
        found = follower.read()
        for line in found:
            yield line
        if found:
            quiet_s = 0.0
            continue
        if quiet_s >= _OPEN_LINE_S and (open_line := follower.take_open_line()):
            yield open_line
        await asyncio.sleep(_FOLLOW_S)
        quiet_s += _FOLLOW_S


class _Follower:
    """Where a reader is in a file whose head may be cut off under it.

    The bytes before the position are remembered: when they are not there any more, the file was shortened, and the
    place is found again by them.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0
        self._anchor = b""
        self._open_line = b""

    def begin(self, lines: int) -> list[str]:
        """The last complete lines; reading goes on after them."""
        try:
            with open(self._path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                tail = _read_tail(file.fileno(), lines + 1)
        except FileNotFoundError:
            return []
        complete, newline, rest = tail.rpartition(b"\n")
        self._position, self._anchor, self._open_line = size, tail[-_ANCHOR_BYTES:], rest
        return _decode_lines(complete + newline)[-lines:] if lines > 0 else []

    def read(self) -> list[str]:
        """Lines that were completed since."""
        try:
            with open(self._path, "rb") as file:
                self._find_place(file.fileno())
                data = os.pread(file.fileno(), 16 * _CHUNK, self._position)
        except FileNotFoundError:
            return []
        self._position += len(data)
        self._anchor = (self._anchor + data)[-_ANCHOR_BYTES:]
        complete, newline, rest = (self._open_line + data).rpartition(b"\n")
        self._open_line = rest
        if len(rest) > _MAX_LINE_BYTES:
            complete, newline, self._open_line = complete + newline + rest, b"\n", b""
        return _decode_lines((complete + newline).replace(b"\0", b""))

    def take_open_line(self) -> str:
        """What stands after the last line's end; it does not come again."""
        line, self._open_line = self._open_line.decode("utf-8", "replace"), b""
        return line

    def _find_place(self, descriptor: int) -> None:
        """Correct the position after the head of the file was cut off."""
        before = self._position - len(self._anchor)
        if os.pread(descriptor, len(self._anchor), before) == self._anchor or not self._anchor:
            return
        size = os.fstat(descriptor).st_size
        tail = os.pread(descriptor, min(size, CAP_BYTES), max(0, size - CAP_BYTES))
        found = tail.rfind(self._anchor)
        self._open_line = self._open_line if found >= 0 else b""
        self._position = max(0, size - CAP_BYTES) + (found + len(self._anchor) if found >= 0 else 0)
