"""Which units go with which, and who waits for whom."""

from units.embedded.order import bound_to, predecessors, pulled_in, stop_levels, upholders_of
from units.embedded.parse import EmbeddedUnit


def units(**relations: dict[str, str]) -> dict[str, EmbeddedUnit]:
    """Name -> unit; each relation is a string of names."""
    return {
        name: EmbeddedUnit(name, "/x", **{key: frozenset(names.split()) for key, names in given.items()})  # type: ignore[arg-type]
        for name, given in relations.items()
    }


def test_a_start_pulls_in_what_is_required_wanted_bound_to_and_upheld() -> None:
    found = units(a={"requires": "b", "wants": "c gone"}, b={"binds_to": "d"}, c={"upholds": "a"}, d={}, e={})
    assert pulled_in("a", found) == ["a", "b", "c", "d"]
    assert pulled_in("gone", found) == ["gone"]


def test_a_unit_waits_for_those_it_is_ordered_after() -> None:
    found = units(a={"after": "b gone"}, b={"after": "c"}, c={})
    assert predecessors("a", found) == {"b", "gone"}
    assert predecessors("c", found) == frozenset()
    assert predecessors("gone", found) == frozenset()


def test_circles_wait_for_nobody_in_them() -> None:
    found = units(a={"after": "b x"}, b={"after": "c"}, c={"after": "a"}, self={"after": "self"}, x={})
    assert predecessors("a", found) == {"x"}
    assert predecessors("b", found) == frozenset()
    assert predecessors("self", found) == frozenset()


def test_a_stop_takes_dependents_first_level_by_level() -> None:
    found = units(
        a={}, b={"requires": "a"}, c={"binds_to": "b"}, d={"part_of": "a"}, e={"wants": "a"}, f={"after": "a"}
    )
    assert stop_levels("a", found) == [["a"], ["b", "d"], ["c"]]
    assert stop_levels("e", found) == [["e"]]


def test_a_circle_of_dependents_ends() -> None:
    assert stop_levels("a", units(a={"binds_to": "b"}, b={"binds_to": "a"})) == [["a"], ["b"]]


def test_bonds_and_upholders_are_found_from_the_other_side() -> None:
    found = units(engine={"upholds": "gate"}, gate={"binds_to": "engine"}, other={})
    assert bound_to("engine", found) == ["gate"]
    assert upholders_of("gate", found) == ["engine"]
    assert upholders_of("other", found) == []
