"""The part of the shared board that counts for keys: requests at once, and requests and tokens of the last minute.

A row for each key that has limits and is in use. In it each worker has a stretch of its own: whether it uses the row,
how many requests of the key it has, and two rings with a cell for each of the last 64 seconds. A ring's cell says
which second it means (high half) and how much was taken in it (low half), so nobody ever has to clear one, and what a
worker wrote counts for as long as its seconds do, whether or not it ever moves again. Column 0 is the arbiter's: it
keeps what a dead worker had taken of the last minute. What that worker had at once is gone with it.

Stretches of one worker lie together, so a key takes a page or two of memory, not a page for each cell. Pages of rows
that were never used cost nothing.
"""

import fcntl
from hashlib import blake2b
from mmap import mmap
from struct import Struct

COLUMNS = 128
ROWS = 4096
RING = 64
"""Seconds that a ring can tell apart; more than the 61 that are looked at."""
_PROBES = 64

USED = 0
ACTIVE = 1
"""Requests at once."""
REQUESTS = 2
"""Where the ring of requests begins."""
TOKENS = REQUESTS + RING
STRETCH = TOKENS + RING
"""Cells of one column in one row."""

LOW = (1 << 32) - 1
_ROW = COLUMNS * STRETCH
CELLS = 2 * ROWS + ROWS * _ROW
"""Size of the whole area."""

_GAP = f"{8 * (STRETCH - 1)}x"
UNPACK = tuple(Struct("=" + _GAP.join(["q"] * columns)).unpack_from for columns in range(COLUMNS + 1))
"""By number of columns: reads the same cell of each."""


class KeyArea:
    """See the module. It begins at the cell `start` of the board; the cell `high` says how many columns count."""

    def __init__(self, memory: mmap, cells: "memoryview[int]", *, start: int, high: int) -> None:
        self.memory = memory
        self.cells = cells
        self.high = high
        self._keys = start
        self._rows = start + 2 * ROWS

    def base_of(self, row: int) -> int:
        """The first cell of a row: column 0's `USED`."""
        return self._rows + row * _ROW

    def claim(self, fd: int, key: str, column: int) -> int | None:
        """The row of a key, made if need be and marked as used by this column; None: there is no room.

        `fd` is the board's, for its lock.
        """
        digest = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        high, low = int.from_bytes(digest[:8], "big", signed=True) or 1, int.from_bytes(digest[8:], "big", signed=True)
        cells, keys = self.cells, self._keys
        fcntl.lockf(fd, fcntl.LOCK_EX)
        try:
            rows = [(low + probe) % ROWS for probe in range(_PROBES)]
            found = next(
                (row for row in rows if cells[keys + 2 * row] == high and cells[keys + 2 * row + 1] == low), None
            )
            if found is None:
                found = next((row for row in rows if self._is_free(row)), None)
                if found is None:
                    return None
                self._begin(found)
                cells[keys + 2 * found], cells[keys + 2 * found + 1] = high, low
            cells[self.base_of(found) + column * STRETCH + USED] = 1
            return found
        finally:
            fcntl.lockf(fd, fcntl.LOCK_UN)

    def clear_column(self, column: int) -> None:
        """Its worker is dead: its requests are over, and what it took of the last minute stays taken."""
        cells = self.cells
        for row in range(ROWS):
            if not cells[self._keys + 2 * row]:
                continue
            base = self.base_of(row)
            own = base + column * STRETCH
            for offset in range(REQUESTS, STRETCH):
                theirs, kept = cells[own + offset], cells[base + offset]
                if theirs >> 32 == kept >> 32:
                    cells[base + offset] = kept + (theirs & LOW)
                else:
                    cells[base + offset] = max(theirs, kept)
            self._wipe(row, column)

    def _is_free(self, row: int) -> bool:
        base = self.base_of(row)
        starts = range(base, base + self.cells[self.high] * STRETCH, STRETCH)
        return not any(self.cells[start + USED] or self.cells[start + ACTIVE] for start in starts)

    def _begin(self, row: int) -> None:
        # Columns beyond those in use were wiped when their workers ended.
        for column in range(self.cells[self.high]):
            self._wipe(row, column)

    def _wipe(self, row: int, column: int) -> None:
        begin = 8 * (self.base_of(row) + column * STRETCH)
        self.memory[begin : begin + 8 * STRETCH] = bytes(8 * STRETCH)
