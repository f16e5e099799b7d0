"""Which units go with which, and who waits for whom. Pure, over the units' declared dependencies."""

from collections.abc import Mapping

from units.embedded.parse import EmbeddedUnit

Units = Mapping[str, EmbeddedUnit]


def pulled_in(name: str, units: Units) -> list[str]:
    """Every unit that a start of `name` starts too (Requires=, BindsTo=, Wants=, Upholds=), `name` first."""
    found, rest = [name], [name]
    while rest:
        unit = units.get(rest.pop(0))
        if unit is not None:
            more = sorted(unit.requires | unit.binds_to | unit.wants | unit.upholds)
            new = [other for other in more if other not in found and other in units]
            found.extend(new)
            rest.extend(new)
    return found


def predecessors(name: str, units: Units) -> frozenset[str]:
    """The units for whose start `name` waits: its After= without those that would (in)directly wait for it."""
    unit = units.get(name)
    return frozenset(other for other in unit.after if not _waits_for(other, name, units)) if unit else frozenset()


def _waits_for(name: str, goal: str, units: Units) -> bool:
    seen, rest = {name}, [name]
    while rest:
        current = rest.pop()
        if current == goal:
            return True
        unit = units.get(current)
        new = [other for other in (unit.after if unit else ()) if other not in seen]
        seen.update(new)
        rest.extend(new)
    return False


def stop_levels(name: str, units: Units) -> list[list[str]]:
    """Who stops with an ordered stop of `name`: it, those that cannot or may not run without it, those of theirs, ….

    Each level stops before the one in front of it.
    """
    levels, seen = [[name]], {name}
    while True:
        last = set(levels[-1])
        following = sorted(
            unit.name
            for unit in units.values()
            if unit.name not in seen and last & (unit.requires | unit.binds_to | unit.part_of)
        )
        if not following:
            return levels
        seen.update(following)
        levels.append(following)


def bound_to(name: str, units: Units) -> list[str]:
    """Units that cannot outlive `name`, however it ends."""
    return sorted(other.name for other in units.values() if name in other.binds_to)


def upholders_of(name: str, units: Units) -> list[str]:
    """Units that keep `name` running while they are active."""
    return sorted(other.name for other in units.values() if name in other.upholds)
