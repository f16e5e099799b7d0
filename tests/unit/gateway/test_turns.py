"""Whose turn it is: limits, reserved slots, overtaking. Tables."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.turns import INTERACTIVE, MOST_OVERTAKINGS, STANDARD, Limits, Standing, Turn, fits, limits_of, next_turn
from tests.unit.gateway.tables import target

S, I = STANDARD, INTERACTIVE  # noqa: E741 - they stand in tables

FITS = [
    # (slots, reserved, taken with the one that came, its class, fits)
    (1, 0, S, S, True),
    (1, 0, 2 * S, S, False),
    (1, 0, I, I, True),
    (1, 0, S + I, I, False),
    (1, 0, S + I, S, False),
    (3, 1, 2 * S, S, True),
    (3, 1, 3 * S, S, False),
    (3, 1, 2 * S + I, I, True),
    (3, 1, 2 * S + I, S, True),
    (3, 1, 2 * S + 2 * I, I, False),
    (3, 1, 3 * I, I, True),
    (3, 1, S + 3 * I, S, False),
    (4096, 0, 4096 * S, S, True),
    (4096, 0, 4097 * S, S, False),
    # The limit was lowered: nobody new, whatever the class.
    (1, 0, 4 * S, S, False),
    (0, 0, S, S, False),
]


@pytest.mark.parametrize(("slots", "reserved", "taken", "unit", "expected"), FITS)
def test_what_fits(slots: int, reserved: int, taken: int, unit: int, expected: bool) -> None:
    assert fits(taken, unit, Limits(slots=slots, reserved=reserved)) is expected


TURNS = [
    # (slots, reserved, taken, oldest standard, oldest interactive, overtakings, turn)
    pytest.param(1, 0, 0, 0, 0, 0, None, id="nobody waits"),
    pytest.param(1, 0, 0, 5, 0, 0, Turn(S, 5), id="a free slot goes to who waits"),
    pytest.param(1, 0, S, 5, 0, 0, None, id="no slot is free"),
    pytest.param(1, 0, I, 5, 7, 0, None, id="no slot is free for either"),
    pytest.param(1, 0, 0, 0, 5, 0, Turn(I, 5), id="interactive alone"),
    pytest.param(1, 0, 0, 9, 5, 0, Turn(I, 5), id="interactive came first: no overtaking"),
    pytest.param(1, 0, 0, 5, 9, 0, Turn(I, 9, True), id="interactive overtakes"),
    pytest.param(1, 0, 0, 5, 9, 3, Turn(I, 9, True), id="the fourth in a row"),
    pytest.param(1, 0, 0, 5, 9, 4, Turn(S, 5), id="not the fifth"),
    pytest.param(1, 0, 0, 0, 9, 4, Turn(I, 9), id="the fifth, when no standard one waits"),
    pytest.param(1, 0, 0, 9, 5, 4, Turn(I, 5), id="the fifth, when it came first"),
    pytest.param(2, 1, S, 5, 9, 4, Turn(I, 9), id="a reserved slot is no overtaking"),
    pytest.param(2, 1, S, 5, 0, 0, None, id="a reserved slot is not for standard ones"),
    pytest.param(2, 1, I, 5, 9, 4, Turn(S, 5), id="interactive work uses up the reserve"),
    pytest.param(2, 1, I + S, 5, 9, 0, None, id="full with a reserve"),
    pytest.param(1, 0, 4 * S, 5, 9, 0, None, id="lowered below what runs"),
    pytest.param(0, 0, 0, 5, 9, 0, None, id="no slots at all"),
]


@pytest.mark.parametrize(("slots", "reserved", "taken", "standard", "interactive", "overtakings", "turn"), TURNS)
def test_whose_turn_it_is(
    slots: int, reserved: int, taken: int, standard: int, interactive: int, overtakings: int, turn: Turn | None
) -> None:
    assert next_turn(Standing(taken, standard, interactive, overtakings), Limits(slots, reserved)) == turn


@given(
    slots=st.integers(1, 8),
    reserved=st.integers(0, 7),
    standard=st.integers(0, 12),
    interactive=st.integers(0, 12),
    waits=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    overtakings=st.integers(0, 6),
)
def test_whoever_is_let_in_fits_and_no_slot_stays_free_for_those_who_may_have_it(
    slots: int, reserved: int, standard: int, interactive: int, waits: tuple[int, int], overtakings: int
) -> None:
    limits = Limits(slots, min(reserved, slots - 1))
    taken = standard * S + interactive * I
    turn = next_turn(Standing(taken, *waits, overtakings), limits)
    if turn is not None:
        assert fits(taken + turn.unit, turn.unit, limits)
        assert turn.stamp == waits[0 if turn.unit == S else 1] > 0
    else:
        assert not (waits[0] and fits(taken + S, S, limits)) and not (waits[1] and fits(taken + I, I, limits))


def test_standard_requests_get_every_fifth_slot_while_interactive_ones_never_end() -> None:
    overtakings, order = 0, ""
    for _ in range(20):
        turn = next_turn(Standing(0, 5, 9, overtakings), Limits(1))
        assert turn is not None
        overtakings = overtakings + 1 if turn.overtakes else 0
        order += "i" if turn.unit == I else "s"
    assert order == ("i" * MOST_OVERTAKINGS + "s") * 4


LIMITS = [
    # (fields of the table's target, limits)
    ({"max_concurrency": 1}, Limits(1, 0, 8, 240.0, 2)),
    ({"max_concurrency": 3}, Limits(3, 0, 12, 240.0, 2)),
    ({"max_concurrency": 3, "max_queued_requests": 0}, Limits(3, 0, 0, 240.0, 2)),
    ({"max_concurrency": 3, "max_queued_requests": 5, "queue_timeout_ms": 1500}, Limits(3, 0, 5, 1.5, 2)),
    ({"max_concurrency": 2, "queue_timeout_ms": 0, "queue_retry_after_seconds": 9}, Limits(2, 0, 8, None, 9)),
    ({"max_concurrency": 2, "interactive_reserved_slots": 1}, Limits(2, 1, 8, 240.0, 2)),
    # A daemon of another version may say what ours would refuse; somebody must still be served.
    ({"max_concurrency": 2, "interactive_reserved_slots": 7}, Limits(2, 1, 8, 240.0, 2)),
    ({"max_concurrency": 0, "interactive_reserved_slots": -1}, Limits(1, 0, 8, 240.0, 2)),
]


@pytest.mark.parametrize(("fields", "limits"), LIMITS)
def test_limits_are_read_from_the_route_table(fields: dict[str, object], limits: Limits) -> None:
    assert limits_of(target("t1", **fields)) == limits
