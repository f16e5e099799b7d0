"""Counters of many workers: exact sums, whoever dies, whoever comes, and whatever the names are."""

import pytest

from gateway.board import ARENA_CELLS, Board, Seat
from gateway.metrics.arena import Arena, Name, gather


def add(arena: Arena, name: Name, cell: int, amount: int, size: int = 3) -> None:
    block = arena.block(name, size)
    assert block is not None
    arena.cells[block + cell] += amount


def test_what_all_workers_count_is_summed_by_name() -> None:
    board = Board.create()
    arenas = [Arena(Seat(Board(board.fd), column)) for column in (1, 2, 127)]
    for number, arena in enumerate(arenas):
        add(arena, ("a", "x"), 0, 1)
        add(arena, ("b", f"only {number}"), 2, 10**12)
    sums = gather(board)
    assert sums["a", "x"] == [3, 0, 0]
    assert [sums["b", f"only {number}"] for number in range(3)] == [[0, 0, 10**12]] * 3
    assert len(sums) == 4


def test_a_dead_workers_counters_stay_and_the_next_at_its_place_goes_on() -> None:
    board = Board.create()
    first = Arena(Seat(Board(board.fd), 1))
    add(first, ("a",), 0, 5)
    add(first, ("b",), 1, 7)
    board.clear_column(1)
    assert gather(board) == {("a",): [5, 0, 0], ("b",): [0, 7, 0]}
    second = Arena(Seat(Board(board.fd), 1))
    add(second, ("b",), 1, 1)
    add(second, ("c",), 2, 2)
    assert gather(board) == {("a",): [5, 0, 0], ("b",): [0, 8, 0], ("c",): [0, 0, 2]}


def test_a_block_that_was_being_made_when_its_worker_was_killed_was_never_there() -> None:
    board = Board.create()
    arena = Arena(Seat(board, 1))
    add(arena, ("a",), 0, 5)
    base = board.arena(1)
    used = board.cells[base]
    # All of a second one is written, but that it is in use.
    add(arena, ("half",), 0, 99)
    board.cells[base] = used
    assert gather(board) == {("a",): [5, 0, 0]}
    add(Arena(Seat(board, 1)), ("other",), 1, 1, size=4)
    assert gather(board) == {("a",): [5, 0, 0], ("other",): [0, 1, 0, 0]}


def test_a_full_arena_says_so_and_keeps_what_it_has() -> None:
    board = Board.create()
    arena = Arena(Seat(board, 1))
    add(arena, ("a",), 0, 1)
    count = 0
    while arena.block(("n", str(count)), 1000) is not None:
        count += 1
    assert ARENA_CELLS // 1010 <= count <= ARENA_CELLS // 1000
    add(arena, ("a",), 0, 1)
    sums = gather(board)
    assert sums["a",] == [2, 0, 0] and len(sums) == count + 1


@pytest.mark.parametrize("label", ["", "ü/ß", "\ud800", "a" * 5000, "a\x00b", "a\nb", '"}'])
def test_any_text_is_a_label(label: str) -> None:
    board = Board.create()
    add(Arena(Seat(board, 1)), ("kind", label, "last"), 0, 1)
    assert gather(board) == {("kind", label, "last"): [1, 0, 0]}
    add(Arena(Seat(board, 1)), ("kind", label, "last"), 0, 1)
    assert gather(board) == {("kind", label, "last"): [2, 0, 0]}


def test_a_separator_in_a_label_makes_no_other_label() -> None:
    board = Board.create()
    add(Arena(Seat(board, 1)), ("kind", "a\x1fb"), 0, 1)
    assert gather(board) == {("kind", "a?b"): [1, 0, 0]}


def test_a_fresh_board_has_counted_nothing() -> None:
    assert gather(Board.create()) == {}
