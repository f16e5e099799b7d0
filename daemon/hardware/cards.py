"""Joins what nvidia-smi's four answers say into the list of cards and MIG instances. Pure.

The report is the base; the query adds compute capabilities, the list adds the instances' UUIDs, and the NVLink
counters are attached by UUID. An answer that is missing leaves its fields empty: it never removes a card.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from core.hardware import Card, Nvlink
from daemon.hardware.gpu_class import card_class, has_unified_memory, instance_class
from daemon.hardware.nvidia import ListedInstance, QueriedCard
from daemon.hardware.nvidia_report import Instance, Report, ReportedCard


@dataclass(frozen=True, slots=True)
class Details:
    """What changes seldom, and is asked for seldom."""

    queried: Mapping[str, QueriedCard] = field(default_factory=dict)
    instances: Mapping[str, tuple[ListedInstance, ...]] = field(default_factory=dict)
    nvlinks: Mapping[str, tuple[Nvlink, ...]] = field(default_factory=dict)


def build_cards(report: Report, details: Details) -> tuple[Card, ...]:
    """Every card, each followed by its instances."""
    cards: list[Card] = []
    for reported in report.cards:
        card = _whole_card(reported, details)
        cards += [card, *_instances(card, reported, details.instances.get(card.uuid, ()))]
    return tuple(cards)


def _whole_card(reported: ReportedCard, details: Details) -> Card:
    card = reported.card
    queried = details.queried.get(card.uuid)
    unified = has_unified_memory(card.name)
    return msgspec.structs.replace(
        card,
        card_class=card_class(card.name, card.memory_total_mib),
        index=queried.index if queried and queried.index is not None else card.index,
        compute_capability=queried.compute_capability if queried else "",
        unified=unified,
        # A part that computes in the machine's memory reports none, or a small wrong one: the machine's counts.
        memory_total_mib=None if unified else card.memory_total_mib,
        memory_used_mib=None if unified else card.memory_used_mib,
        memory_free_mib=None if unified else card.memory_free_mib,
        recovery_action=card.recovery_action or ("Reset" if queried and queried.needs_reset else ""),
        nvlinks=list(details.nvlinks.get(card.uuid, ())),
        processes=[entry.process for entry in reported.processes],
    )


def _instances(card: Card, reported: ReportedCard, listed: Sequence[ListedInstance]) -> list[Card]:
    if not card.mig:
        return []
    by_index = {entry.index: entry for entry in listed}
    return [_instance(card, reported, instance, by_index.get(instance.index)) for instance in reported.instances]


def _instance(card: Card, reported: ReportedCard, instance: Instance, listed: ListedInstance | None) -> Card:
    profile = listed.profile if listed else ""
    return Card(
        uuid=listed.uuid if listed else "",
        name=f"{card.name} MIG {profile or instance.index}",
        card_class=instance_class(card.card_class, profile) if profile else "",
        pci=card.pci,
        parent=card.uuid,
        mig=True,
        compute_capability=card.compute_capability,
        memory_total_mib=instance.memory_total_mib,
        memory_used_mib=instance.memory_used_mib,
        memory_free_mib=instance.memory_free_mib,
        temperature_c=card.temperature_c,
        ecc_uncorrected=instance.ecc_uncorrected,
        processes=[
            entry.process
            for entry in reported.processes
            if entry.gpu_instance is not None and entry.gpu_instance == instance.gpu_instance
        ],
    )
