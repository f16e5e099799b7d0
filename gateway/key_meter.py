"""What one key has taken of its limits, over all workers: reading the sums, and writing this worker's own.

The minute is a sliding one, in steps of a second: what counts is this second and the 60 before it. So in no 60 seconds
is more let through than the limit, however the requests are bunched; a fixed minute would let twice as much through
around its turn, and two weighted buckets are wrong for all that is not spread evenly. It costs a client that keeps
exactly to its limit one request in 61.

Seconds that are over do not change any more, but for a worker that was stopped in the middle of writing. Their sum is
made once a second, and a request reads two cells of each worker.
"""

from gateway.board import Seat
from gateway.key_area import ACTIVE, LOW, REQUESTS, RING, STRETCH, TOKENS, UNPACK, USED, KeyArea

WINDOW_S = 60


class Ring:
    """One ring of a row: a count for each second."""

    __slots__ = ("_area", "_at", "_cells", "_closed", "_closed_at", "_memory", "_own", "_start")

    def __init__(self, area: KeyArea, start: int, column: int) -> None:
        self._area = area
        self._cells = area.cells
        self._memory = area.memory
        self._start = start
        """Its first cell in column 0."""
        self._own = start + column * STRETCH
        self._closed = 0
        self._closed_at = -1

    def add(self, second: int, count: int) -> None:
        """This worker took so much."""
        cells, at, tag = self._cells, self._own + second % RING, second << 32
        value = cells[at]
        # More than a cell can hold is as much as it can hold: it is far over any limit.
        cells[at] = min((value if value >= tag else tag) + count, tag + LOW)

    def take_back(self, second: int, count: int) -> None:
        """It did not, after all; a second that the ring has forgotten stays as it is."""
        cells, at = self._cells, self._own + second % RING
        if cells[at] >> 32 == second:
            cells[at] -= count

    def total(self, second: int) -> int:
        """Taken in the minute up to this second, over all workers."""
        if self._closed_at != second:
            self._closed = sum(self._counts(second, second - 2).values())
            self._closed_at = second
        cells, memory, start = self._cells, self._memory, self._start
        read = UNPACK[cells[self._area.high]]
        total, tag = self._closed, second << 32
        for value in read(memory, 8 * (start + second % RING)):
            if value > tag:
                total += value - tag
        tag -= 1 << 32
        for value in read(memory, 8 * (start + (second - 1) % RING)):
            if value > tag:
                total += value - tag
        return total

    def wait_s(self, second: int, count: int) -> int:
        """Seconds from this one until so much of what was taken counts no longer; at most the whole minute."""
        for taken_in, taken in sorted(self._counts(second, second).items()):
            count -= taken
            if count <= 0:
                return taken_in + WINDOW_S + 1 - second
        return WINDOW_S + 1

    def _counts(self, second: int, until: int) -> dict[int, int]:
        """Second -> taken in it, of the minute before `second`, up to `until`."""
        low, high = (second - WINDOW_S) << 32, (until + 1) << 32
        counts: dict[int, int] = {}
        for begin in range(self._start, self._start + self._cells[self._area.high] * STRETCH, STRETCH):
            for value in self._cells[begin : begin + RING].tolist():
                if low <= value < high:
                    counts[value >> 32] = counts.get(value >> 32, 0) + (value & LOW)
        return counts


class KeyMeter:
    """One key in one worker."""

    __slots__ = (
        "_active_at",
        "_cells",
        "_high",
        "_memory",
        "_own",
        "active",
        "is_closed",
        "requests",
        "tokens",
        "used",
    )

    def __init__(self, seat: Seat, row: int) -> None:
        area = seat.board.keys
        base = area.base_of(row)
        self._cells = area.cells
        self._memory = area.memory
        self._high = area.high
        self._own = base + seat.column * STRETCH
        self._active_at = 8 * (base + ACTIVE)
        self.requests = Ring(area, base + REQUESTS, seat.column)
        self.tokens = Ring(area, base + TOKENS, seat.column)
        self.active = 0
        """Requests at once, of this worker."""
        self.used = 0
        """The last second in which this worker took anything."""
        self.is_closed = False

    def count(self, more: int) -> None:
        """So many requests more are under way."""
        self.active += more
        self._cells[self._own + ACTIVE] = self.active

    def total_active(self) -> int:
        """Over all workers."""
        return sum(UNPACK[self._cells[self._high]](self._memory, self._active_at))

    def close(self) -> None:
        """This worker uses the row no longer; it may soon be another key's."""
        self.is_closed = True
        self._cells[self._own + USED] = 0
