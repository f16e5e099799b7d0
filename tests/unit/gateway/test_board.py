"""The shared board: rows for keys, columns for workers, and what is left of a dead one: nothing."""

import os

import pytest

from gateway.board import BOARD_VARIABLE, Board, BoardFull, Cell, Seat, open_seat
from gateway.key_area import COLUMNS


def seats(count: int) -> list[Seat]:
    board = Board.create(columns=count + 1)
    taken: set[int] = set()
    for _ in range(count):
        taken.add(board.offer_column(taken))
    return [Seat(Board(board.fd), column) for column in sorted(taken)]


def test_a_key_has_the_same_row_for_all_and_different_keys_have_different_rows() -> None:
    one, two = seats(2)
    rows = [one.row(f"t{number}").index for number in range(100)]
    assert rows == [two.row(f"t{number}").index for number in range(100)] and len(set(rows)) == 100


@pytest.mark.parametrize("key", ["", "a" * 10_000, "\ud800", "ü/ß", "a\x00b"])
def test_any_text_is_a_key(key: str) -> None:
    (one,) = seats(1)
    assert one.row(key).index == one.row(key).index != one.row(key + "x").index


def test_what_one_worker_writes_all_read_and_nobody_else_changes() -> None:
    one, two = seats(2)
    mine, yours = one.row("t"), two.row("t")
    mine.put(Cell.COUNTS, 3)
    yours.put(Cell.COUNTS, 1 << 40)
    assert sum(mine.values(Cell.COUNTS)) == sum(yours.values(Cell.COUNTS)) == 3 + (1 << 40)
    assert (mine.own(Cell.COUNTS), yours.own(Cell.COUNTS)) == (3, 1 << 40)
    assert sum(mine.values(Cell.MARK)) == 0


def test_nothing_of_a_dead_worker_remains_but_what_only_grows() -> None:
    one, two = seats(2)
    mine, dead = one.row("t"), two.row("t")
    for cell in Cell:
        dead.put(cell, 5)
        mine.put(cell, 2)
    one.board.clear_column(two.column)
    sums = {cell: sum(mine.values(cell)) for cell in Cell}
    grown = dict.fromkeys(
        (Cell.OVERTAKINGS, Cell.OVERTAKINGS_SEEN, Cell.MARK, Cell.FORGIVEN, Cell.RESTING, Cell.NEWS), 7
    )
    assert sums == dict.fromkeys(Cell, 2) | grown


def test_the_death_of_a_worker_wakes_the_others() -> None:
    one, two = seats(2)
    one.board.clear_column(two.column)
    assert os.eventfd_read(one.waker) == 1
    one.hush()  # again, with nothing to take note of


def test_a_free_row_is_another_keys_and_begins_empty() -> None:
    one, two = seats(2)
    mine, yours = one.row("t"), two.row("t")
    mine.put(Cell.COUNTS, 3)
    yours.free()
    mine.free()
    # So many keys that each row that may hold "t" is wanted by another one, and is used when it is free.
    assert all(sum(one.row(f"k{number}").values(Cell.COUNTS)) == 0 for number in range(1000))


def test_a_row_in_use_by_another_worker_stays() -> None:
    one, two = seats(2)
    mine, yours = one.row("t"), two.row("t")
    yours.put(Cell.COUNTS, 1)
    mine.free()
    assert sum(one.row("t").values(Cell.COUNTS)) == 1


def test_a_full_board_says_so_and_makes_room_again() -> None:
    (one,) = seats(1)
    rows = []
    with pytest.raises(BoardFull):
        for number in range(5000):
            rows.append(one.row(f"t{number}"))
    assert len(rows) > 2000
    for row in rows:
        row.free()
    assert one.row("another").own(Cell.COUNTS) == 0


def test_columns_are_given_once_and_given_again_when_their_worker_is_gone() -> None:
    board = Board.create(columns=4)
    assert [board.offer_column({1}), board.offer_column({1, 3}), board.offer_column({2, 3})] == [2, 2, 1]
    assert board.offer_column({1, 2, 3}) == 0


def test_all_columns_up_to_the_last_in_use_are_read() -> None:
    board = Board.create()
    last = board.offer_column(set(range(1, COLUMNS - 1)))
    assert last == COLUMNS - 1
    row = Seat(board, last).row("t")
    row.put(Cell.COUNTS, 1)
    assert len(row.values(Cell.COUNTS)) == COLUMNS and sum(row.values(Cell.COUNTS)) == 1


@pytest.mark.parametrize("value", [None, "", "x,1", "3", "3,0", ",", "-1,1"])
def test_without_an_arbiter_a_worker_has_a_board_of_its_own(value: str | None) -> None:
    seat = open_seat({} if value is None else {BOARD_VARIABLE: value})
    row = seat.row("t")
    row.put(Cell.COUNTS, 1)
    assert sum(row.values(Cell.COUNTS)) == 1
    seat.close()


def test_a_worker_finds_the_arbiters_board() -> None:
    board = Board.create(columns=3)
    column = board.offer_column(set())
    open_seat({BOARD_VARIABLE: f"{board.fd},{column}"}).row("t").put(Cell.COUNTS, 4)
    assert sum(Seat(board, board.offer_column({column})).row("t").values(Cell.COUNTS)) == 4


def test_what_one_worker_remembers_of_a_conversation_all_recall() -> None:
    one, two = seats(2)
    for conversation in (0, 1, (1 << 64) - 1, 0xFEDCBA9876543210, 1 << 63):
        one.board.remember(conversation, 4095)
        assert two.board.recall(conversation) == 4095
        two.board.remember(conversation, 7)
        assert one.board.recall(conversation) == 7


def test_another_conversation_in_the_same_cell_is_no_hint() -> None:
    (one,) = seats(1)
    one.board.remember(5 << 40 | 9, 7)
    assert one.board.recall(6 << 40 | 9) is None
    assert one.board.recall(12345 << 20) is None
