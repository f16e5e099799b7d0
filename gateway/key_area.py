"""The part of the shared board that counts for keys: requests at once, and requests and tokens of the last minute.

A row for each key that has limits and is in use. In it each worker has a stretch of its own: whether it uses the row,
how many requests of the key it has, and two rings with a cell for each of the last 64 seconds. A ring's cell says
which second it means (high half) and how much was taken in it (low half), so nobody ever has to clear one, and what a
worker wrote counts for as long as its seconds do, whether or not it ever moves again. Column 0 is the arbiter's: it
keeps what a dead worker had taken of the last minute. What that worker had at once is gone with it.

Stretches of one worker lie together, so a key takes a page or two of memory, not a page for each cell. Pages of rows
that were never used cost nothing.
"""

from mmap import mmap
from struct import Struct

from gateway.row_keys import CELLS as ROW_KEYS_CELLS
from gateway.row_keys import ROWS, RowKeys

COLUMNS = 128
RING = 64
"""Seconds that a ring can tell apart; more than the 61 that are looked at."""

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
CELLS = ROW_KEYS_CELLS + ROWS * _ROW
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
        self._keys = RowKeys(cells, start)
        self._rows = start + ROW_KEYS_CELLS

    def base_of(self, row: int) -> int:
        """The first cell of a row: column 0's `USED`."""
        return self._rows + row * _ROW

    def claim(self, fd: int, key: str, column: int) -> int | None:
        """The row of a key, made if need be and marked as used by this column; None: there is no room.

        `fd` is the board's, for its lock.
        """
        return self._keys.claim(fd, key, column, self)

    def clear_column(self, column: int) -> None:
        """Its worker is dead: its requests are over, and what it took of the last minute stays taken."""
        cells = self.cells
        for row in range(ROWS):
            if not self._keys.is_taken(row):
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

    # gateway.row_keys.Rows

    def is_free(self, row: int) -> bool:
        base = self.base_of(row)
        starts = range(base, base + self.cells[self.high] * STRETCH, STRETCH)
        return not any(self.cells[start + USED] or self.cells[start + ACTIVE] for start in starts)

    def begin(self, row: int) -> None:
        # Columns beyond those in use were wiped when their workers ended.
        for column in range(self.cells[self.high]):
            self._wipe(row, column)

    def mark_used(self, row: int, column: int) -> None:
        self.cells[self.base_of(row) + column * STRETCH + USED] = 1

    def _wipe(self, row: int, column: int) -> None:
        begin = 8 * (self.base_of(row) + column * STRETCH)
        self.memory[begin : begin + 8 * STRETCH] = bytes(8 * STRETCH)
