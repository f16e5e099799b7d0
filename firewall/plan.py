"""What to do so that the table is as it should be: nothing, other elements, a whole new one, or none. Pure.

The least that is enough is chosen, since a table that is made anew forgets what its rules counted; what was seen of
that is written into the new one.
"""

from dataclasses import dataclass
from enum import StrEnum

from firewall.normalize import describe_difference, normalize, skeleton
from firewall.policy import Policy
from firewall.ruleset import (
    Command,
    Counts,
    Object,
    build_table,
    element_commands,
    install_commands,
    remove_commands,
)


class Step(StrEnum):
    """How the table is brought to what is wanted."""

    NOTHING = "nothing"
    INSTALL = "install"
    ELEMENTS = "elements"
    REPLACE = "replace"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class Plan:
    """One transaction, and what it changes."""

    step: Step
    commands: tuple[Command, ...] = ()
    difference: tuple[str, ...] = ()


def make_plan(policy: Policy | None, present: list[Object] | None, counts: Counts | None = None) -> Plan:
    """`policy` None: no table is wanted. `present` None: none is there. `counts`: what the rules counted so far."""
    if policy is None:
        if present is None:
            return Plan(Step.NOTHING)
        return Plan(Step.REMOVE, tuple(remove_commands()), describe_difference(present, None))
    wanted = build_table(policy, counts)
    if present is None:
        return Plan(Step.INSTALL, tuple(install_commands(wanted)), describe_difference(None, wanted))
    want, have = normalize(wanted), normalize(present)
    if want == have:
        return Plan(Step.NOTHING)
    difference = describe_difference(present, wanted)
    if skeleton(want) == skeleton(have):
        changed = [item for item in want if "set" in item and item not in have]
        return Plan(Step.ELEMENTS, tuple(element_commands(changed)), difference)
    return Plan(Step.REPLACE, tuple(install_commands(wanted)), difference)
