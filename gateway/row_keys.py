"""Which row of shared memory is whose: a table of keys that every worker looks up, and adds to, in the same way.

A key is known by 128 bits of a digest, in two cells; its row is one of a few places from where the digest points on.
Looking, adding and marking a row as used are done under one lock, so that no two processes give a free row to two keys.
"""

import fcntl
from hashlib import blake2b
from typing import Protocol

ROWS = 4096
_PROBES = 64
CELLS = 2 * ROWS


class Rows(Protocol):
    """The rows that the keys name."""

    def is_free(self, row: int) -> bool: ...

    def begin(self, row: int) -> None:
        """Clear the row for its new key."""

    def mark_used(self, row: int, column: int) -> None: ...


class RowKeys:
    """See the module. The table begins at the cell `start`."""

    def __init__(self, cells: "memoryview[int]", start: int) -> None:
        self._cells = cells
        self._start = start

    def is_taken(self, row: int) -> bool:
        """Whether the row was ever anybody's."""
        return self._cells[self._start + 2 * row] != 0

    def claim(self, fd: int, key: str, column: int, rows: Rows) -> int | None:
        """The row of a key, made if need be and marked as used by this column; None: there is no room.

        `fd` is the file of the shared memory, for its lock.
        """
        digest = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        # Zero marks a row that was never anybody's.
        high, low = int.from_bytes(digest[:8], "big", signed=True) or 1, int.from_bytes(digest[8:], "big", signed=True)
        # A lock of POSIX belongs to the process, and the kernel takes it from one that dies.
        fcntl.lockf(fd, fcntl.LOCK_EX)
        try:
            row = self._find(high, low, rows)
            if row is not None:
                rows.mark_used(row, column)
            return row
        finally:
            fcntl.lockf(fd, fcntl.LOCK_UN)

    def _find(self, high: int, low: int, rows: Rows) -> int | None:
        cells, start = self._cells, self._start
        near = [(low + probe) % ROWS for probe in range(_PROBES)]
        for row in near:
            if cells[start + 2 * row] == high and cells[start + 2 * row + 1] == low:
                return row
        for row in near:
            if rows.is_free(row):
                rows.begin(row)
                cells[start + 2 * row], cells[start + 2 * row + 1] = high, low
                return row
        return None
