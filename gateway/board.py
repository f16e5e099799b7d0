"""Numbers that all gateway workers share: slots, requests that wait, failures; and keys' (`gateway.key_area`).

gunicorn's workers share nothing by themselves, and a limit that each keeps for itself is no limit. The arbiter makes
one piece of shared memory before it forks, with a table of 64-bit cells in it: a row for each target, a column for each
worker. A worker writes only its own column and reads sums over all, so no two ever write the same cell; the arbiter
clears the column of a worker that died, and then nothing of it remains. Column 0 is the arbiter's own.

A worker that takes a slot writes first, then reads the sum, and gives back when it is over (`gateway/slots.py`).
Between its write and its read stands a `fence`: without one, two processors may each miss what the other wrote.

Which target answered a conversation last is one more table, of hints that any worker may write over.

What costs a request something here are `values` and `put`; rows are claimed when a route table comes.
"""

import mmap
import os
import struct
import time
from collections.abc import Callable, Mapping
from enum import IntEnum
from threading import Lock

from core.errors import UnavailableError
from gateway.key_area import CELLS as KEY_AREA_CELLS
from gateway.key_area import COLUMNS, KeyArea
from gateway.row_keys import CELLS as ROW_KEYS_CELLS
from gateway.row_keys import ROWS, RowKeys

BOARD_VARIABLE = "LLMGW_BOARD"
"""`FD,COLUMN`: how a worker finds the arbiter's board, and its own place on it."""


class Cell(IntEnum):
    """What stands in a row, once for each column."""

    USED = 0
    """1: the worker's route table has the target, so the row is not free."""
    COUNTS = 1
    """Slots that are taken and requests that wait, as `gateway.turns` counts them."""
    OLDEST_STANDARD = 2
    """When the worker's first waiting request came; 0: none waits."""
    OLDEST_INTERACTIVE = 3
    OVERTAKINGS = 4
    """Interactive requests that the worker let in before standard ones, ever."""
    OVERTAKINGS_SEEN = 5
    """Their sum over all workers, when this one let a standard request in last."""
    MARK = 6
    """What the worker holds against the target (`gateway.ejection`); the largest counts."""
    FORGIVEN = 7
    """The largest mark that the worker knows to be over."""
    RESTING = 8
    """Until when the target is not asked while others can be; milliseconds, monotonic."""
    PROBING = 9
    """1: a request of the worker finds out whether the target is back."""
    NEWS = 10
    """How often the worker wrote about any target; on a row of its own."""


_GROWING = (Cell.OVERTAKINGS, Cell.NEWS)
"""Sums that only grow: the arbiter keeps what a dead worker added, or they would go back."""
_LATEST = (Cell.OVERTAKINGS_SEEN, Cell.MARK, Cell.FORGIVEN, Cell.RESTING)
"""Of these the largest counts, and is kept likewise."""

_HIGH = 0
"""The cell that says how many columns there are to read."""
_WAKERS = 1
_KEYS = _WAKERS + COLUMNS
_CELLS = _KEYS + ROW_KEYS_CELLS
_ROW_CELLS = len(Cell) * COLUMNS
_KEY_AREA = _CELLS + ROWS * _ROW_CELLS
_CONVERSATIONS = _KEY_AREA + KEY_AREA_CELLS
_SLOTS = 1 << 16
_ROW_BITS = ROWS - 1
_TAG = (1 << 63) - 1 & ~_ROW_BITS
"""Of a conversation's number, what stands in its cell beside the row."""
ARENA_CELLS = 128 << 10
"""For what a column counts (`gateway.metrics.arena`)."""
_WORKERS = _CONVERSATIONS + _SLOTS
"""The worker of each column: its process id; 0: none. Column 0: when the board was made, in seconds since the epoch."""
_ARENAS = _WORKERS + COLUMNS
_SIZE_BYTES = 8 * (_ARENAS + COLUMNS * ARENA_CELLS)
_UNPACK = tuple(struct.Struct(f"={columns}q").unpack_from for columns in range(COLUMNS + 1))


class BoardFull(UnavailableError):
    """More targets than the board has rows."""

    code = "board_full"


class Board:
    """The memory. Untouched pages of it cost nothing."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.memory = mmap.mmap(fd, _SIZE_BYTES)
        # Nearly all of it is never touched, and must not fill a disk when a worker crashes.
        self.memory.madvise(mmap.MADV_DONTDUMP)
        self.cells: memoryview[int] = memoryview(self.memory).cast("q")
        self._targets = RowKeys(self.cells, _KEYS)
        self.keys = KeyArea(self.memory, self.cells, start=_KEY_AREA, high=_HIGH)
        self._wakers: list[int] = []

    @classmethod
    def create(cls, columns: int = COLUMNS) -> "Board":
        """A new one, with a way to wake each column's worker. Everything is inherited by a fork."""
        fd = os.memfd_create("llmgw-board")
        os.ftruncate(fd, _SIZE_BYTES)
        board = cls(fd)
        board.cells[_HIGH] = 1
        board.cells[_WORKERS] = int(time.time())
        for column in range(1, columns):
            waker = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            board.cells[_WAKERS + column] = waker
            board._wakers.append(waker)
        return board

    def close(self) -> None:
        """Only who created it. The memory itself stays for as long as anybody looks at it."""
        for waker in self._wakers:
            os.close(waker)
        os.close(self.fd)

    def offer_column(self, taken: set[int]) -> int:
        """A free column for a new worker, when these have owners; 0: there is none."""
        for column in range(1, COLUMNS):
            if column not in taken and self.cells[_WAKERS + column]:
                self.cells[_HIGH] = max({column, *taken}) + 1
                return column
        return 0

    def clear_column(self, column: int) -> None:
        """Its worker is dead, and so are its requests. Called by the arbiter."""
        cells = self.cells
        for row in range(ROWS):
            if not self._targets.is_taken(row):
                continue
            base = _CELLS + row * _ROW_CELLS
            for cell in _GROWING:
                cells[base + cell * COLUMNS] += cells[base + cell * COLUMNS + column]
            for cell in _LATEST:
                kept = base + cell * COLUMNS
                cells[kept] = max(cells[kept], cells[kept + column])
            for cell in Cell:
                cells[base + cell * COLUMNS + column] = 0
        self.keys.clear_column(column)
        cells[_WORKERS + column] = 0
        for other in range(1, cells[_HIGH]):
            if other != column:
                self.wake(other)

    def wake(self, column: int) -> None:
        """Have the column's worker look at its queues."""
        waker = self.cells[_WAKERS + column]
        if waker:
            os.eventfd_write(waker, 1)

    def waker(self, column: int) -> int:
        """The file descriptor that becomes readable when the column's worker is woken."""
        return self.cells[_WAKERS + column]

    def claim_row(self, key: str, column: int) -> int:
        """The row of a key, made if need be, and marked as used by this column. Raises: BoardFull."""
        row = self._targets.claim(self.fd, key, column, self)
        if row is None:
            raise BoardFull("the gateway's board has no row left for another target")
        return row

    @property
    def columns(self) -> int:
        return COLUMNS

    @property
    def made_at_s(self) -> int:
        """Since the epoch: when the gateway began."""
        return self.cells[_WORKERS]

    def workers(self) -> list[int]:
        """The process ids of those that live."""
        return [pid for pid in self.cells[_WORKERS + 1 : _WORKERS + COLUMNS] if pid]

    def arena(self, column: int) -> int:
        """Where the cells begin that a column counts in. They are nobody's but its own, and outlive its worker."""
        return _ARENAS + column * ARENA_CELLS

    def remember(self, conversation: int, row: int) -> None:
        """Which target answered it. A hint that anybody may write over: one cell, so it is never half a hint."""
        self.cells[_CONVERSATIONS + conversation % _SLOTS] = conversation & _TAG | row

    def recall(self, conversation: int) -> int | None:
        """The row of the target that answered it last; None: that was forgotten."""
        hint = self.cells[_CONVERSATIONS + conversation % _SLOTS]
        return hint & _ROW_BITS if hint & _TAG == conversation & _TAG else None

    # gateway.row_keys.Rows

    def is_free(self, row: int) -> bool:
        base = _CELLS + row * _ROW_CELLS
        return not any(
            any(self.cells[base + cell * COLUMNS : base + (cell + 1) * COLUMNS]) for cell in (Cell.USED, Cell.COUNTS)
        )

    def begin(self, row: int) -> None:
        base = _CELLS + row * _ROW_CELLS
        for cell in range(base, base + _ROW_CELLS):
            self.cells[cell] = 0

    def mark_used(self, row: int, column: int) -> None:
        self.cells[_CELLS + row * _ROW_CELLS + Cell.USED * COLUMNS + column] = 1


class Seat:
    """One worker's place at the board."""

    def __init__(self, board: Board, column: int, *, owns_board: bool = False) -> None:
        self.board = board
        self.column = column
        self.waker = board.waker(column)
        self.lock = Lock()
        """Nobody waits for it; see `fence`."""
        self._owns_board = owns_board
        board.cells[_WORKERS + column] = os.getpid()

    def row(self, key: str) -> "Row":
        """Raises: BoardFull."""
        return Row(self, self.board.claim_row(key, self.column))

    def fence(self) -> None:
        """What this process wrote is seen by all others before it reads on: a lock's atomic operation does that."""
        self.lock.acquire()
        self.lock.release()

    def hush(self) -> None:
        """Take note of having been woken."""
        try:
            os.eventfd_read(self.waker)
        except BlockingIOError:
            pass

    def close(self) -> None:
        if self._owns_board:
            self.board.close()


class Row:
    """One target's cells, as one worker sees them."""

    __slots__ = ("_cells", "_memory", "_offsets", "_owns", "index", "seat")

    def __init__(self, seat: Seat, index: int) -> None:
        self.seat = seat
        self.index = index
        self._cells = seat.board.cells
        self._memory = seat.board.memory
        base = _CELLS + index * _ROW_CELLS
        self._owns = tuple(base + cell * COLUMNS + seat.column for cell in Cell)
        self._offsets = tuple(8 * (base + cell * COLUMNS) for cell in Cell)

    def put(self, cell: Cell, value: int) -> None:
        """Write this worker's own."""
        self._cells[self._owns[cell]] = value

    def own(self, cell: Cell) -> int:
        return self._cells[self._owns[cell]]

    def values(self, cell: Cell) -> tuple[int, ...]:
        """Every column's; the index is the column."""
        return _UNPACK[self._cells[_HIGH]](self._memory, self._offsets[cell])

    def reader(self, cell: Cell) -> Callable[[], tuple[int, ...]]:
        """`values` of one cell, for what is asked with every request: half the cost."""
        cells, memory, offset = self._cells, self._memory, self._offsets[cell]
        return lambda: _UNPACK[cells[_HIGH]](memory, offset)

    def writer(self, cell: Cell) -> Callable[[int], int]:
        """`put` of one cell, a fence, and the sum over all columns: taking first and looking after, in one call."""
        cells, index = self._cells, self._owns[cell]
        memory, offset = self._memory, self._offsets[cell]
        acquire, release = self.seat.lock.acquire, self.seat.lock.release

        def write(value: int) -> int:
            cells[index] = value
            acquire()
            release()
            return sum(_UNPACK[cells[_HIGH]](memory, offset))

        return write

    def free(self) -> None:
        """This worker's route table has the target no longer."""
        for cell in Cell:
            self.put(cell, 0)


def open_seat(environ: Mapping[str, str]) -> Seat:
    """The seat that the arbiter gave this process; without an arbiter, one at a board that nobody shares."""
    fd, _, column = environ.get(BOARD_VARIABLE, "").partition(",")
    if fd.isdecimal() and column.isdecimal() and int(column) > 0:
        return Seat(Board(int(fd)), int(column))
    board = Board.create(columns=2)
    return Seat(board, board.offer_column(set()), owns_board=True)
