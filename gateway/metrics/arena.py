"""Counters in memory that all workers share: blocks of cells, each under a name, in one arena for each worker.

A worker writes only its own arena, so adding is one plain write, and a reader sums over all. What is counted belongs to
the *place* (the board's column) and not to the worker: one that dies leaves its counters where they are, and whoever
gets the place next goes on from there. So nothing is lost or counted twice, and no sum ever goes back. All is gone when
the arbiter ends, which is a restart of the gateway to every reader.

An arena begins with a cell that says how many are in use. A block is written whole before it counts as in use, so a
worker that is killed in the middle of it has not begun.

    size in cells | bytes of the name | the name, in whole cells | values …
"""

from collections.abc import Iterator, Mapping, Sequence

from gateway.board import ARENA_CELLS, Board, Seat

Name = tuple[str, ...]
"""The kind of a block, then its labels."""

_USED = 0
_BEGIN = 1
_SEPARATOR = "\x1f"


class Arena:
    """One worker's own."""

    def __init__(self, seat: Seat) -> None:
        self.cells = seat.board.cells
        """Of the whole board; what `block` gives counts from its beginning."""
        self._base = seat.board.arena(seat.column)
        self._blocks = {name: at for name, at, _ in _walk(self.cells, self._base)}

    def block(self, name: Name, size: int) -> int | None:
        """Where its values begin, made if need be; None: there is no room left."""
        found = self._blocks.get(name)
        if found is None:
            found = self._make(name, size)
            if found is not None:
                self._blocks[name] = found
        return found

    def _make(self, name: Name, size: int) -> int | None:
        text = encode_name(name)
        words = -(-len(text) // 8)
        begin = self._base + max(self.cells[self._base + _USED], _BEGIN)
        values = begin + 2 + words
        end = values + size
        if end > self._base + ARENA_CELLS:
            return None
        cells = self.cells
        cells[begin], cells[begin + 1] = end - begin, len(text)
        cells[begin + 2 : values] = memoryview(text.ljust(8 * words, b"\0")).cast("q")
        for index in range(values, end):
            cells[index] = 0
        cells[self._base + _USED] = end - self._base
        return values


def encode_name(name: Name) -> bytes:
    """Names as bytes; a separator in a label is none of ours."""
    return _SEPARATOR.join(part.replace(_SEPARATOR, "?") for part in name).encode("utf-8", "surrogatepass")


def _walk(cells: "memoryview[int]", base: int) -> Iterator[tuple[Name, int, int]]:
    """(name, where its values begin, where they end) of every block of an arena."""
    end = base + cells[base + _USED]
    at = base + _BEGIN
    while at + 2 < end:
        size, length = cells[at], cells[at + 1]
        values = at + 2 + -(-length // 8)
        text = cells[at + 2 : values].tobytes()[:length]
        yield tuple(text.decode("utf-8", "surrogatepass").split(_SEPARATOR)), values, at + size
        at += size


def gather(board: Board) -> Mapping[Name, Sequence[int]]:
    """Every block of every worker that ever was, summed by its name."""
    sums: dict[Name, list[int]] = {}
    for column in range(board.columns):
        for name, begin, end in _walk(board.cells, board.arena(column)):
            values = board.cells[begin:end].tolist()
            known = sums.get(name)
            sums[name] = values if known is None else [one + other for one, other in zip(known, values, strict=True)]
    return sums
