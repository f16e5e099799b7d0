"""Which cards may be used, how much of each, and why not the others. Pure.

Reads what `health.py` judged and adds what only placement minds: a card in MIG mode is used through its instances
or not at all, unified memory is the machine's own, other people's memory is not ours to count on, and values that
are too old are no basis for a decision.
"""

from collections.abc import Mapping, Sequence

import msgspec

from core.hardware import Card, Memory, Problem


def place_cards(
    cards: Sequence[Card],
    *,
    memory: Memory | None,
    owners: Mapping[int, str],
    users: Mapping[int, str],
    stale_after_s: float,
) -> list[Card]:
    """The cards with `placeable`, `available_mib`, `foreign_mib` and their processes' owners filled in.

    `owners` maps the processes of our units to their runtimes, `users` any process to its user's name.
    """
    divided = {card.parent for card in cards if card.parent}
    parents = {card.uuid: card for card in cards if card.uuid}
    return [_place(_name_processes(card, owners, users), memory, divided, parents, stale_after_s) for card in cards]


def _place(
    card: Card, memory: Memory | None, divided: set[str], parents: Mapping[str, Card], stale_after_s: float
) -> Card:
    total, used, free = _memory_of(card, memory)
    problems = [
        *card.problems,
        *_inherited(card, parents),
        *_mig_problems(card, divided),
        *_unknown(card, free),
        *_stale(card, stale_after_s),
    ]
    # A card that is divided is no problem; it is just not what anything is placed on.
    usable = bool(card.uuid) and not (card.mig and not card.parent)
    placeable = usable and not any(problem.blocks for problem in problems)
    return msgspec.structs.replace(
        card,
        memory_total_mib=total,
        memory_used_mib=used,
        memory_free_mib=free,
        problems=problems,
        placeable=placeable,
        available_mib=free if placeable else None,
        foreign_mib=_foreign(card),
    )


def _memory_of(card: Card, memory: Memory | None) -> tuple[int | None, int | None, int | None]:
    """Total, used and free; the machine's for a card that computes in it."""
    if not card.unified:
        return card.memory_total_mib, card.memory_used_mib, card.memory_free_mib
    if memory is None or memory.total_mib is None or memory.available_mib is None:
        return None, None, None
    return memory.total_mib, memory.total_mib - memory.available_mib, memory.available_mib


def _inherited(card: Card, parents: Mapping[str, Card]) -> list[Problem]:
    """An instance of a card that is out is out too."""
    parent = parents.get(card.parent) if card.parent else None
    if parent is None:
        return []
    own = {problem.code for problem in card.problems}
    return [problem for problem in parent.problems if problem.blocks and problem.code not in own]


def _mig_problems(card: Card, divided: set[str]) -> list[Problem]:
    if card.parent and not card.uuid:
        return [
            Problem(
                code="mig_uuid_unknown",
                message="nvidia-smi -L does not name this instance",
                hint="nvidia-smi -L; it is looked at again within a minute",
                blocks=True,
            )
        ]
    if card.mig and not card.parent and card.uuid not in divided:
        which = card.index if card.index is not None else card.pci
        return [
            Problem(
                code="mig_empty",
                message="the card is in MIG mode and has no instance",
                hint=f"nvidia-smi mig -i {which} -cgi PROFILE -C, or leave the mode: nvidia-smi -i {which} -mig 0",
                blocks=True,
            )
        ]
    return []


def _unknown(card: Card, free: int | None) -> list[Problem]:
    if free is not None or not card.uuid or (card.mig and not card.parent):
        return []
    return [
        Problem(
            code="memory_unknown",
            message="how much memory is free cannot be read",
            hint="nvidia-smi -q -d MEMORY; a driver of branch 525 or newer reports it",
            blocks=True,
        )
    ]


def _stale(card: Card, stale_after_s: float) -> list[Problem]:
    if card.age_s is None or card.age_s <= stale_after_s:
        return []
    return [
        Problem(
            code="card_data_stale",
            message=f"what is known of it is {card.age_s:.0f} s old",
            hint="llmgw doctor says why nvidia-smi does not answer",
            blocks=True,
        )
    ]


def _name_processes(card: Card, owners: Mapping[int, str], users: Mapping[int, str]) -> Card:
    named = [
        msgspec.structs.replace(process, runtime=owners.get(process.pid, ""), user=users.get(process.pid, ""))
        for process in card.processes
    ]
    return msgspec.structs.replace(card, processes=named)


def _foreign(card: Card) -> int | None:
    """MiB of others' processes; None when one of them does not tell."""
    sizes = [process.memory_mib for process in card.processes if not process.runtime]
    return None if any(size is None for size in sizes) else sum(size for size in sizes if size is not None)
