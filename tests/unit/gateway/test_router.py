"""The order of targets: load, then what a conversation prefers, then shares; what has failed comes last."""

import random
from collections import Counter
from collections.abc import Iterable, Mapping

import pytest

from core.api import RouteTarget
from gateway.affinity import seed_of
from gateway.ejection import Standing
from gateway.router import AHEAD, AHEAD_ALONE, NEARLY, Field, Order, Why, build_field, order_targets
from tests.unit.gateway.tables import target

A, B, C = target("a"), target("b"), target("c")
HEAVY = target("h", weight=3)
ZERO = target("z", weight=0)
OUT, RESTING, RETURNING = Standing.OUT, Standing.RESTING, Standing.RETURNING
NONE: dict[str, int] = {}


def order(
    ready: Iterable[RouteTarget],
    in_flight: Mapping[str, int],
    standings: Mapping[str, Standing],
    recent: Mapping[str, float] | None = None,
    beginning: int | None = None,
    remembered: int | None = None,
) -> Order:
    field = build_field(tuple(ready))
    ids = [each.id for each in field.targets]
    counted = [(recent or {}).get(id_, 0.0) for id_ in ids]
    return order_targets(field, [in_flight.get(id_, 0) for id_ in ids], counted, standings, beginning, remembered)


ROWS = [
    # (ready, in flight, recent, standings, order, how many are usable, why)
    ((A,), NONE, {}, {}, "a", 1, Why.ONLY),
    ((A,), {"a": 99}, {}, {}, "a", 1, Why.ONLY),
    ((A, B), NONE, {}, {}, "ab", 2, Why.LOAD),
    ((A, B), NONE, {"a": 1}, {}, "ba", 2, Why.LOAD),
    ((A, B), {"a": 1}, {}, {}, "ba", 2, Why.LOAD),
    ((A, B), {"a": 1}, {"b": 99}, {}, "ba", 2, Why.LOAD),
    ((A, B), {"a": 2, "b": 2}, {"a": 3.5, "b": 3.25}, {}, "ba", 2, Why.LOAD),
    ((A, B), {"c": 9}, {}, {}, "ab", 2, Why.LOAD),
    ((A, B, C), {"a": 2, "b": 1}, {}, {}, "cba", 3, Why.LOAD),
    ((A, B, C), {"c": 5}, {"a": 1}, {}, "bac", 3, Why.LOAD),
    ((A, B, C), NONE, {"a": 2, "b": 1}, {}, "cba", 3, Why.LOAD),
    # Weight shares ties and never beats load.
    ((A, HEAVY), NONE, {}, {}, "ha", 2, Why.LOAD),
    ((A, HEAVY), NONE, {"h": 1}, {}, "ah", 2, Why.LOAD),
    ((A, HEAVY), NONE, {"h": 1, "a": 1}, {}, "ha", 2, Why.LOAD),
    ((A, HEAVY), {"h": 1}, {}, {}, "ah", 2, Why.LOAD),
    ((A, ZERO), NONE, {"a": 1}, {}, "za", 2, Why.LOAD),
    # One that is out comes last, however idle it is; when all are, load decides again.
    ((A, B), {"b": 50}, {}, {"a": OUT}, "ba", 1, Why.ONLY),
    ((A, B), {"a": 1}, {}, {"a": OUT, "b": OUT}, "ba", 2, Why.LAST_RESORT),
    ((A, B, C), {"b": 1}, {}, {"a": OUT}, "cba", 2, Why.LOAD),
    ((A, B, C), NONE, {"b": 1}, {"a": OUT, "c": OUT}, "bac", 1, Why.ONLY),
    # One that rests is better than one that is out, and is waited for only where nobody else is.
    ((A, B, C), {"b": 9}, {}, {"a": OUT, "b": RESTING}, "cba", 1, Why.ONLY),
    ((A, B), {"b": 9}, {}, {"a": OUT, "b": RESTING}, "ba", 1, Why.LAST_RESORT),
    ((A, B), {"a": 9}, {}, {"a": RESTING, "b": RESTING}, "ba", 2, Why.LAST_RESORT),
    # One that returns is asked first, and the others after it.
    ((A, B, C), {"a": 3, "b": 1}, {}, {"a": RETURNING}, "acb", 3, Why.PROBE),
    ((A, B, C), {"b": 1}, {}, {"a": OUT, "b": RETURNING}, "bca", 2, Why.PROBE),
    ((A, B), NONE, {}, {"a": RETURNING, "b": RETURNING}, "ab", 2, Why.PROBE),
    ((A,), NONE, {}, {"a": RETURNING}, "a", 1, Why.PROBE),
]


@pytest.mark.parametrize(("ready", "in_flight", "recent", "standings", "want", "usable", "why"), ROWS)
def test_targets_are_ordered_by_standing_then_load_then_share(
    ready: tuple[RouteTarget, ...], in_flight: dict[str, int], recent: dict[str, float],
    standings: dict[str, Standing], want: str, usable: int, why: Why,
) -> None:  # fmt: skip
    got = order(ready, in_flight, standings, recent)
    assert ("".join(each.id for each in got.targets), got.usable, got.why) == (want, usable, why)


def preferred_by(beginning: int, targets: Iterable[RouteTarget]) -> str:
    return order(targets, NONE, {}, beginning=beginning).targets[0].id


def beginning_for(wanted: str, targets: Iterable[RouteTarget]) -> int:
    """A conversation that prefers this target."""
    ready = tuple(targets)
    drawn = random.Random(1)
    return next(each for each in iter(lambda: drawn.getrandbits(64), None) if preferred_by(each, ready) == wanted)


LIKES_A = beginning_for("a", (A, B, C))

AFFINITY_ROWS = [
    # (in flight, recent, standings, first, why)
    (NONE, {}, {}, "a", Why.AFFINITY),
    ({"a": NEARLY}, {}, {}, "a", Why.AFFINITY),
    ({"a": NEARLY + 1}, {}, {}, "not a", Why.YIELDED),
    ({"a": 9, "b": 4, "c": 4}, {}, {}, "not a", Why.YIELDED),
    ({"a": 10, "b": 8, "c": 8}, {}, {}, "a", Why.AFFINITY),
    ({"a": NEARLY + 1, "b": NEARLY + 1}, {}, {}, "c", Why.YIELDED),
    (NONE, {"a": AHEAD_ALONE}, {}, "a", Why.AFFINITY),
    (NONE, {"a": AHEAD_ALONE + 1}, {}, "not a", Why.YIELDED),
    (NONE, {"a": AHEAD + 9, "b": 9, "c": 30}, {}, "a", Why.AFFINITY),
    (NONE, {"a": AHEAD + 10, "b": 9, "c": 30}, {}, "b", Why.YIELDED),
    (NONE, {"a": 425, "b": 400, "c": 460}, {}, "a", Why.AFFINITY),
    (NONE, {"a": 426, "b": 400, "c": 460}, {}, "b", Why.YIELDED),
    (NONE, {"a": AHEAD_ALONE + 1, "b": AHEAD_ALONE + 1}, {}, "c", Why.YIELDED),
    (NONE, {}, {"a": OUT}, "not a", Why.AFFINITY),
    (NONE, {}, {"a": RESTING}, "not a", Why.AFFINITY),
    (NONE, {}, {"c": RETURNING}, "c", Why.PROBE),
]


@pytest.mark.parametrize(("in_flight", "recent", "standings", "first", "why"), AFFINITY_ROWS)
def test_a_conversation_goes_where_it_prefers_unless_that_one_is_too_busy(
    in_flight: dict[str, int], recent: dict[str, float], standings: dict[str, Standing], first: str, why: Why
) -> None:
    got = order((A, B, C), in_flight, standings, recent, LIKES_A)
    assert got.why is why
    assert got.targets[0].id in ("bc" if first == "not a" else first)


KINDS = ["no conversation", "one conversation", "many conversations"]


def draw_beginnings(kind: str, count: int) -> list[int | None]:
    """What so many requests of this kind begin with."""
    drawn = random.Random(2)
    usual = None if kind == "no conversation" else 7
    return [drawn.getrandbits(64) if kind == "many conversations" else usual for _ in range(count)]


@pytest.mark.parametrize(
    ("in_flight", "standings", "first", "why"),
    [
        (NONE, {}, "c", Why.AFFINITY),
        ({"c": NEARLY}, {}, "c", Why.AFFINITY),
        ({"c": NEARLY + 1}, {}, "a", Why.YIELDED),
        (NONE, {"c": OUT}, "a", Why.AFFINITY),
        (NONE, {"a": OUT, "b": OUT}, "c", Why.ONLY),
    ],
)
def test_who_answered_a_conversation_last_is_preferred_to_what_its_hash_says(
    in_flight: dict[str, int], standings: dict[str, Standing], first: str, why: Why
) -> None:
    got = order((A, B, C), in_flight, standings, {}, LIKES_A, 2)
    assert (got.targets[0].id, got.why) == (first, why)


def simulate(field: Field, beginnings: Iterable[int | None]) -> Counter[str]:
    """Requests one after the other, none under way with another."""
    recent = [0.0] * len(field.targets)
    idle = [0] * len(field.targets)
    counts: Counter[str] = Counter()
    for beginning in beginnings:
        first = order_targets(field, idle, recent, {}, beginning).targets[0]
        recent[field.targets.index(first)] += 1
        counts[first.id] += 1
    return counts


@pytest.mark.parametrize("kind", KINDS)
def test_sixteen_equal_targets_share_a_few_thousand_short_requests_evenly(kind: str) -> None:
    beginnings = draw_beginnings(kind, 4000)
    counts = simulate(build_field([target(f"t{n}") for n in range(16)]), beginnings)
    assert len(counts) == 16
    assert max(counts.values()) / min(counts.values()) <= 1.3


@pytest.mark.parametrize("kind", KINDS)
def test_weights_share_the_requests_within_two_points(kind: str) -> None:
    beginnings = draw_beginnings(kind, 2000)
    counts = simulate(build_field([target("a"), target("b", weight=2), target("c", weight=5)]), beginnings)
    shares = {id_: 100 * count / 2000 for id_, count in counts.items()}
    assert shares == {"a": pytest.approx(12.5, abs=2), "b": pytest.approx(25, abs=2), "c": pytest.approx(62.5, abs=2)}


def test_a_conversation_of_sixteen_quick_turns_stays_where_it_is() -> None:
    assert simulate(build_field([A, B, C]), [LIKES_A] * 16) == {"a": 16}


def test_only_the_conversations_of_a_target_that_goes_move_and_they_spread() -> None:
    drawn = random.Random(4)
    targets = [target(f"node{n}/r") for n in range(4)]
    moved: Counter[str] = Counter()
    for _ in range(4000):
        beginning = drawn.getrandbits(64)
        before, after = preferred_by(beginning, targets), preferred_by(beginning, targets[:3])
        assert after == before or before == "node3/r"
        moved.update([after] if before == "node3/r" else [])
    assert len(moved) == 3 and max(moved.values()) / min(moved.values()) <= 1.3


def test_a_targets_seed_is_the_same_everywhere() -> None:
    # A constant: gateways of other versions and machines must agree.
    assert seed_of("n1/qwen") == 14372000840097311734


def test_load_counted_at_dispatch_spreads_a_burst_whose_answers_have_not_begun() -> None:
    targets = [target(name) for name in "abcd"]
    in_flight: Counter[str] = Counter()
    for _ in range(100):
        in_flight[order(targets, in_flight, {}).targets[0].id] += 1
    assert set(in_flight.values()) == {25}


def test_no_target_is_ever_left_out_or_named_twice() -> None:
    drawn = random.Random(5)
    targets = [target(name) for name in "abcdef"]
    for _ in range(2000):
        standings = {each.id: drawn.choice(list(Standing)) for each in targets if drawn.random() < 0.5}
        standings = {id_: standing for id_, standing in standings.items() if standing is not Standing.GOOD}
        beginning = drawn.choice([None, drawn.getrandbits(64)])
        recent = {each.id: drawn.random() * 40 for each in targets}
        got = order(targets, {each.id: drawn.randrange(4) for each in targets}, standings, recent, beginning)
        assert sorted(each.id for each in got.targets) == list("abcdef")
        assert 1 <= got.usable <= 6
