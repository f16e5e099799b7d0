"""The order of targets: load first, then weight, then turn; what has just failed comes last."""

from collections import Counter

import pytest

from gateway.router import order_targets
from tests.unit.gateway.tables import target

A, B, C = target("a"), target("b"), target("c")
HEAVY = target("h", weight=3)
ZERO = target("z", weight=0)
NONE: dict[str, int] = {}

ROWS = [
    # (ready, in flight, cooling, turn, order)
    ((), NONE, "", 0, ""),
    ((A,), NONE, "", 0, "a"),
    ((A,), {"a": 99}, "", 7, "a"),
    ((A,), NONE, "a", 0, "a"),
    ((A, B), NONE, "", 0, "ab"),
    ((A, B), NONE, "", 1, "ba"),
    ((A, B), NONE, "", 2, "ab"),
    ((A, B), NONE, "", 10**12 + 1, "ba"),
    ((A, B), {"a": 1}, "", 0, "ba"),
    ((A, B), {"a": 1}, "", 1, "ba"),
    ((A, B), {"b": 1}, "", 1, "ab"),
    ((A, B), {"a": 2, "b": 2}, "", 0, "ab"),
    ((A, B), {"a": 2, "b": 2}, "", 1, "ba"),
    ((A, B), {"c": 9}, "", 0, "ab"),
    ((A, B, C), {"a": 2, "b": 1}, "", 0, "cba"),
    ((A, B, C), {"a": 2, "b": 1}, "", 2, "cba"),
    ((A, B, C), {"c": 5}, "", 0, "abc"),
    ((A, B, C), {"c": 5}, "", 1, "bac"),
    ((A, B, C), NONE, "", 2, "cab"),
    # Weight shares ties and never beats load.
    ((A, HEAVY), NONE, "", 0, "ah"),
    ((A, HEAVY), NONE, "", 1, "ha"),
    ((A, HEAVY), NONE, "", 3, "ha"),
    ((A, HEAVY), NONE, "", 4, "ah"),
    ((A, HEAVY), {"h": 1}, "", 1, "ah"),
    ((A, ZERO), NONE, "", 1, "za"),
    # A target that just failed comes last, however idle it is; when all did, load decides again.
    ((A, B), {"b": 50}, "a", 0, "ba"),
    ((A, B), {"b": 50}, "a", 1, "ba"),
    ((A, B), {"a": 1}, "ab", 0, "ba"),
    ((A, B, C), {"b": 1}, "a", 0, "cba"),
    ((A, B, C), NONE, "ac", 1, "bac"),
]


@pytest.mark.parametrize(("ready", "in_flight", "cooling", "turn", "want"), ROWS)
def test_targets_are_ordered_by_load_then_weight_then_turn(
    ready: tuple[object, ...], in_flight: dict[str, int], cooling: str, turn: int, want: str
) -> None:
    got = order_targets(ready, in_flight, set(cooling), turn)  # type: ignore[arg-type]
    assert "".join(each.id for each in got) == want


def test_sixteen_equal_targets_share_a_thousand_short_requests_evenly() -> None:
    targets = [target(f"t{n}") for n in range(16)]
    counts = Counter(order_targets(targets, NONE, set(), turn)[0].id for turn in range(1000))
    assert len(counts) == 16
    assert max(counts.values()) / min(counts.values()) <= 1.3


def test_weights_share_the_turns_in_proportion() -> None:
    targets = [target("a", weight=1), target("b", weight=2), target("c", weight=5)]
    counts = Counter(order_targets(targets, NONE, set(), turn)[0].id for turn in range(800))
    assert counts == {"a": 100, "b": 200, "c": 500}


def test_load_counted_at_dispatch_spreads_a_burst_whose_answers_have_not_begun() -> None:
    targets = [target(name) for name in "abcd"]
    in_flight: Counter[str] = Counter()
    for turn in range(100):
        in_flight[order_targets(targets, in_flight, set(), turn)[0].id] += 1
    assert set(in_flight.values()) == {25}


def test_no_target_is_ever_left_out() -> None:
    targets = [target(name) for name in "abcdef"]
    got = order_targets(targets, {"a": 5, "f": 1}, {"b", "c"}, 3)
    assert sorted(each.id for each in got) == list("abcdef")
