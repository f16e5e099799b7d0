"""The watchdog's decisions as tables: what an engine shows over time, and what becomes of it."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.runtimes.watchdog import Limits, Sample, Verdict, Watched, judge, owes

LIMITS = Limits()
Step = tuple[float, bool, int, float | None]
"""Seconds, whether it owes anything, bytes so far, its counters."""


def run(samples: Iterable[Sample], limits: Limits = LIMITS, watched: Watched | None = None) -> list[Verdict]:
    """All verdicts; a restart that is asked for happens."""
    state, verdicts = watched or Watched(), []
    for sample in samples:
        state, verdict = judge(state, sample, limits)
        verdicts.append(verdict)
        if verdict is Verdict.DEAD:
            state = state.restarted(sample.at_s)
    return verdicts


def still(seconds: int, *, owing: bool = True, cores: float | None = None) -> list[Sample]:
    """An engine that shows nothing new, looked at each second."""
    return [Sample(float(s), owing, 7, 7.0, cores) for s in range(seconds + 1)]


def first(verdicts: list[Verdict], wanted: Verdict) -> int | None:
    return verdicts.index(wanted) if wanted in verdicts else None


def test_an_engine_that_moves_nothing_is_ejected_and_then_restarted() -> None:
    verdicts = run(still(130))
    assert (first(verdicts, Verdict.STUCK), first(verdicts, Verdict.DEAD)) == (20, 120)


def test_an_idle_engine_is_never_touched() -> None:
    assert set(run(still(3600, owing=False))) == {Verdict.MOVES}


@pytest.mark.parametrize("every_s", [1, 5, 15, 19])
def test_an_engine_that_sends_a_byte_now_and_then_is_never_touched(every_s: int) -> None:
    samples = [Sample(float(s), True, s // every_s) for s in range(3600)]
    assert set(run(samples)) == {Verdict.MOVES}


@pytest.mark.parametrize("every_s", [1, 5, 15, 19])
def test_an_engine_whose_own_counters_grow_is_never_touched(every_s: int) -> None:
    samples = [Sample(float(s), True, 0, float(s // every_s)) for s in range(3600)]
    assert set(run(samples)) == {Verdict.MOVES}


def test_an_engine_that_moves_again_comes_back_into_rotation() -> None:
    samples = [*still(30), Sample(31.0, True, 8, 7.0)]
    assert run(samples)[-2:] == [Verdict.STUCK, Verdict.MOVES]


def test_counters_that_cannot_be_read_for_a_while_are_no_progress_when_they_come_back() -> None:
    samples = [replace(sample, steps=None if sample.at_s > 3 else 7.0) for sample in still(24)]
    assert run([*samples, Sample(25.0, True, 7, 7.0)])[-1] is Verdict.STUCK


def test_a_worker_that_died_takes_its_bytes_along_and_that_is_no_progress() -> None:
    samples = [replace(sample, bytes_total=3 if sample.at_s > 10 else 7) for sample in still(21)]
    assert run(samples)[-1] is Verdict.STUCK


def test_a_pause_of_the_machine_is_no_stall() -> None:
    assert run([Sample(0.0, True, 1), Sample(9000.0, True, 1)])[-1] is Verdict.MOVES


def test_computing_on_the_cpu_counts_for_a_fifth() -> None:
    verdicts = run(still(700, cores=1.5))
    assert first(verdicts, Verdict.STUCK) in (100, 101) and first(verdicts, Verdict.DEAD) in (600, 601)


def test_a_little_cpu_is_no_computing() -> None:
    assert first(run(still(30, cores=0.1)), Verdict.STUCK) == 20


def test_short_lived_clients_do_not_hide_a_stall() -> None:
    """Each gives up after 8 seconds, and the next one comes 2 seconds later."""
    samples = [replace(sample, owes=sample.at_s % 10 < 8) for sample in still(40)]
    assert first(run(samples), Verdict.STUCK) is not None


def test_an_ejected_engine_that_nobody_waits_for_is_tried_again() -> None:
    samples = [*still(25), *(Sample(float(s), False, 7, 7.0) for s in range(26, 60))]
    verdicts = run(samples)
    assert verdicts[26] is Verdict.GIVEN_UP and set(verdicts[27:]) == {Verdict.MOVES}


def test_clients_that_give_up_three_times_have_it_restarted() -> None:
    samples = [replace(sample, owes=sample.at_s % 30 < 25) for sample in still(85)]
    verdicts = run(samples, replace(LIMITS, restart_after_s=9999))
    assert verdicts.count(Verdict.GIVEN_UP) == 2 and first(verdicts, Verdict.DEAD) == 85


def test_failures_outside_the_window_are_forgotten() -> None:
    samples = [replace(sample, owes=sample.at_s % 30 < 25) for sample in still(600)]
    verdicts = run(samples, replace(LIMITS, restart_after_s=9999, failure_window_s=45))
    assert Verdict.DEAD not in verdicts and Verdict.GIVEN_UP in verdicts


def test_a_restart_is_not_repeated_within_the_cooldown() -> None:
    verdicts = run(still(1000), replace(LIMITS, cooldown_s=500))
    assert [second for second, verdict in enumerate(verdicts) if verdict is Verdict.DEAD] == [120, 620]
    assert verdicts[600] is Verdict.STUCK, "out of rotation all the while"


def test_a_new_life_that_the_watchdog_did_not_order_keeps_the_cooldown() -> None:
    watched = Watched(restarted_at_s=0.0).anew()
    assert Verdict.DEAD not in run(still(400), watched=watched)


@given(st.lists(st.tuples(st.floats(0, 30), st.booleans(), st.integers(0, 3)), max_size=60))
def test_whatever_an_engine_that_moves_at_least_every_ten_seconds_does_it_is_left_alone(
    steps: list[tuple[float, bool, int]],
) -> None:
    at_s, size, samples = 0.0, 0, []
    for gap_s, owing, grown in steps:
        at_s += min(gap_s, 10.0)
        size += grown + 1
        samples.append(Sample(at_s, owing, size))
    assert set(run(samples)) <= {Verdict.MOVES}


@pytest.mark.parametrize(
    ("active", "held_back", "stalled_s", "slots", "has_counters", "expected"),
    [
        (0, 0, 0.0, 1, True, False),
        (1, 0, 0.0, 1, True, True),
        (1, 0, 0.0, 1, False, False),
        (1, 0, 9.0, 1, False, True),
        (1, 1, 0.0, 4, True, False),
        (2, 1, 0.0, 1, True, False),
        (2, 1, 0.0, 4, True, True),
        (9, 4, 0.0, 4, True, False),
        (1000, 0, 60.0, 1, True, True),
    ],
)
def test_what_an_engine_owes(
    active: int, held_back: int, stalled_s: float, slots: int, has_counters: bool, expected: bool
) -> None:
    assert (
        owes(active=active, held_back=held_back, stalled_s=stalled_s, slots=slots, has_counters=has_counters)
        is expected
    )
