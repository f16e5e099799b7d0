"""What an end means, and whether, when and how often a unit comes back."""

import math
import signal

import pytest

from units.embedded.restart import (
    UNKNOWN_EXIT,
    Exit,
    Result,
    is_restarted,
    judge_exit,
    may_start,
    read_wait_status,
    recent_starts,
    restart_delay_s,
)
from units.model import RestartWhen


@pytest.mark.parametrize(
    ("status", "end"),
    [
        (0, Exit(0)),
        (7 << 8, Exit(7)),
        (9, Exit(9, by_signal=True)),
        (11 | 0x80, Exit(11, by_signal=True, dumped_core=True)),
    ],
)
def test_wait_statuses_are_read(status: int, end: Exit) -> None:
    assert read_wait_status(status) == end


@pytest.mark.parametrize(
    ("end", "result"),
    [
        (Exit(0), Result.SUCCESS),
        (Exit(1), Result.EXIT_CODE),
        (Exit(143), Result.EXIT_CODE),
        *((Exit(number, by_signal=True), Result.SUCCESS) for number in (1, 2, 13, 15)),
        (Exit(signal.SIGKILL, by_signal=True), Result.SIGNAL),
        (Exit(signal.SIGABRT, by_signal=True, dumped_core=True), Result.CORE_DUMP),
        (UNKNOWN_EXIT, Result.EXIT_CODE),
        (Exit(0, is_known=False), Result.EXIT_CODE),
    ],
)
def test_an_end_is_judged_as_systemd_does(end: Exit, result: Result) -> None:
    assert judge_exit(end) is result


@pytest.mark.parametrize("result", list(Result))
def test_which_ends_bring_a_unit_back(result: Result) -> None:
    assert is_restarted(RestartWhen.ALWAYS, result)
    assert not is_restarted(RestartWhen.NO, result)
    assert is_restarted(RestartWhen.ON_FAILURE, result) == (result is not Result.SUCCESS)


@pytest.mark.parametrize(
    ("delay_s", "max_s", "steps", "restarts", "expected_s"),
    [
        (1.0, math.inf, 0, 5, 1.0),
        (1.0, 16.0, 4, 0, 1.0),
        (1.0, 16.0, 4, 2, 4.0),
        (1.0, 16.0, 4, 4, 16.0),
        (1.0, 16.0, 4, 400, 16.0),
        (1.0, math.inf, 4, 2, 1.0),
        (0.0, 16.0, 4, 2, 0.0),
        (5.0, 1.0, 4, 2, 5.0),
    ],
)
def test_the_pause_grows_in_steps(delay_s: float, max_s: float, steps: int, restarts: int, expected_s: float) -> None:
    assert restart_delay_s(delay_s, max_s, steps, restarts) == pytest.approx(expected_s)


@pytest.mark.parametrize(
    ("starts_s", "burst", "interval_s", "allowed"),
    [
        ([], 3, 10.0, True),
        ([95.0, 96.0], 3, 10.0, True),
        ([95.0, 96.0, 97.0], 3, 10.0, False),
        ([80.0, 90.0, 97.0], 3, 10.0, True),
        ([95.0, 96.0, 97.0], 0, 10.0, True),
        ([95.0, 96.0, 97.0], 3, 0.0, True),
        ([1.0, 2.0, 3.0], 3, math.inf, False),
    ],
)
def test_starts_are_limited_over_a_sliding_interval(
    starts_s: list[float], burst: int, interval_s: float, allowed: bool
) -> None:
    assert may_start(starts_s, 100.0, burst=burst, interval_s=interval_s) == allowed


def test_old_starts_are_forgotten() -> None:
    assert recent_starts([80.0, 90.0, 91.0], 100.0, 10.0) == [91.0]
