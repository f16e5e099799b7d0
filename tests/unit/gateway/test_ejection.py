"""Marks: how long a target is out, how it comes back, and that many failures at once are one."""

import pytest

from core.http.verdict import Ended, read_retry_after
from gateway.ejection import (
    COOLDOWN_S,
    LONGEST_REST_S,
    LONGEST_S,
    REST_S,
    Blame,
    Standing,
    blame_for,
    judge,
    level_of,
    next_mark,
    rest_s,
    until_s_of,
)

NOW_S = 1000.0


def standing(mark: int, forgiven: int, at_s: float, *, resting_s: float = 0.0, is_probed: bool = False) -> Standing:
    return judge(mark, forgiven, resting_s, at_s, is_probed=is_probed)


def test_a_target_is_out_then_returns_then_is_good_when_it_is_forgiven() -> None:
    mark = next_mark(0, 0, NOW_S)
    assert standing(mark, 0, NOW_S) is Standing.OUT
    assert standing(mark, 0, NOW_S + COOLDOWN_S - 0.1) is Standing.OUT
    assert standing(mark, 0, NOW_S + COOLDOWN_S + 0.1) is Standing.RETURNING
    assert standing(mark, 0, NOW_S + COOLDOWN_S + 0.1, is_probed=True) is Standing.OUT
    assert standing(mark, mark, NOW_S) is Standing.GOOD


def test_cool_downs_double_until_the_longest_and_begin_anew_when_it_worked_between() -> None:
    mark, now_s, lasted = 0, NOW_S, []
    for _ in range(20):
        mark = next_mark(mark, 0, now_s)
        lasted.append(until_s_of(mark) - now_s)
        now_s = until_s_of(mark)
    assert lasted[:6] == pytest.approx([5, 10, 20, 40, 60, 60]) and lasted[-1] == pytest.approx(LONGEST_S)
    again = next_mark(mark, mark, now_s)
    assert until_s_of(again) - now_s == pytest.approx(COOLDOWN_S)


def test_failures_of_requests_that_were_under_way_together_are_one() -> None:
    mark = next_mark(0, 0, NOW_S)
    assert next_mark(mark, 0, NOW_S + COOLDOWN_S / 2) == mark


def test_a_failure_after_it_was_forgiven_counts_however_long_the_cool_down_was() -> None:
    mark = next_mark(next_mark(0, 0, NOW_S), 0, NOW_S + COOLDOWN_S)
    again = next_mark(mark, mark, NOW_S + COOLDOWN_S + 0.1)
    assert again > mark and level_of(again) == 0
    assert standing(again, mark, NOW_S + COOLDOWN_S + 0.2) is Standing.OUT


def test_a_mark_fits_into_a_cell_for_ever() -> None:
    mark = 0
    for now_s in (0.0, 1e9, 1e12, 1e12):
        mark = next_mark(mark, mark, now_s)
        assert 0 < mark < 1 << 63
    assert 0 < next_mark((1 << 63) - 1, (1 << 63) - 1, 1e12) < 1 << 63


@pytest.mark.parametrize(
    ("said_s", "rests_s"),
    [(None, REST_S), (0.0, 0.0), (7.0, 7.0), (60.0, 60.0), (1e9, LONGEST_REST_S), (-5.0, 0.0)],
)
def test_an_engine_rests_as_long_as_it_says_within_a_bound(said_s: float | None, rests_s: float) -> None:
    assert rest_s(said_s) == rests_s


def test_a_target_that_rests_is_good_when_its_time_is_over() -> None:
    assert standing(0, 0, NOW_S, resting_s=NOW_S + 1) is Standing.RESTING
    assert standing(0, 0, NOW_S + 1, resting_s=NOW_S + 1) is Standing.GOOD


@pytest.mark.parametrize("ended", list(Ended))
def test_a_client_is_never_held_against_a_target(ended: Ended) -> None:
    innocent = {Ended.COMPLETE, Ended.CLIENT_GONE, Ended.NO_TARGET}
    assert (blame_for(ended) is Blame.NONE) is (ended in innocent)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ([], None),
        ([(b"retry-after", b"7")], 7.0),
        ([(b"Retry-After", b" 0 ")], 0.0),
        ([(b"retry-after", b"Wed, 21 Oct 2026 07:28:00 GMT")], None),
        ([(b"retry-after", b"")], None),
        ([(b"retry-after", b"-1")], None),
        ([(b"retry-after", b"1.5")], None),
        ([(b"retry-after", b"9" * 400)], None),
        ([(b"retry-after", "²".encode())], None),
    ],
)
def test_a_retry_after_is_read_or_passed_over(headers: list[tuple[bytes, bytes]], seconds: float | None) -> None:
    assert read_retry_after(headers) == seconds
