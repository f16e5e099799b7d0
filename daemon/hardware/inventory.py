"""Everything that was read, with the time of each reading; and what it adds up to. Pure.

An `Inventory` is a frozen value: the sampler replaces parts of it as it reads, and `build_state` turns it into what
the world is told, judged and with ages. Nothing is ever dropped because a later reading failed; it only gets older.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import msgspec

from core.hardware import (
    Adapter,
    Card,
    Cpu,
    Disk,
    Driver,
    HardwareState,
    Link,
    Memory,
    NumaNode,
    PciDevice,
    Problem,
    Source,
)
from daemon.hardware.cards import Details, build_cards
from daemon.hardware.health import CardXids, judge_card
from daemon.hardware.infiniband import assign_fabrics, judge_fabrics
from daemon.hardware.nvidia import pci_address
from daemon.hardware.nvidia_report import Report, ReportedCard
from daemon.hardware.placement import place_cards
from daemon.hardware.undriven import undriven_cards

T = TypeVar("T")

SOURCES = ("nvidia-smi", "udev", "infiniband", "cpu", "memory", "disks", "links", "kernel-log")
_NOTHING_THERE = frozenset({"nvidia_no_devices", "nvidia_driver_not_loaded", "nvidia_smi_missing"})
"""Answers of nvidia-smi that are no fault on a machine without NVIDIA hardware."""


@dataclass(frozen=True, slots=True)
class Reading(Generic[T]):
    """A value and when it was read, on the monotonic clock."""

    value: T
    read_s: float


@dataclass(frozen=True, slots=True)
class Gone:
    """A card that was here and is not any more."""

    pci: str
    problem: Problem


@dataclass(frozen=True, slots=True)
class Rules:
    """What the config says about judging."""

    stale_after_s: float = 30.0
    fabrics: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Inventory:
    """All readings so far; None: not read yet."""

    devices: Reading[tuple[PciDevice, ...]] | None = None
    reported: Mapping[str, Reading[ReportedCard]] = field(default_factory=dict)
    report_s: float | None = None
    """When nvidia-smi answered last, whatever it knew."""
    driver_version: str = ""
    """As nvidia-smi says it; for a container, where /proc does not."""
    cuda_version: str = ""
    details: Details = field(default_factory=Details)
    driver: Reading[Driver | None] | None = None
    adapters: Reading[tuple[Adapter, ...]] | None = None
    cpu: Reading[Cpu | None] | None = None
    numa: tuple[NumaNode, ...] = ()
    memory: Reading[Memory | None] | None = None
    disks: Reading[tuple[Disk, ...]] | None = None
    links: Reading[tuple[Link, ...]] | None = None
    kernel_log_followed: bool = False
    xids: Mapping[str, CardXids] = field(default_factory=dict)
    """PCI address -> the driver's messages."""
    lost: Mapping[str, Problem] = field(default_factory=dict)
    """PCI address -> why the driver has no hold of a card that is there."""
    gone: Mapping[str, Gone] = field(default_factory=dict)
    """By UUID."""
    acknowledged_ecc: Mapping[str, int] = field(default_factory=dict)
    owners: Mapping[int, str] = field(default_factory=dict)
    users: Mapping[int, str] = field(default_factory=dict)
    errors: Mapping[str, Problem] = field(default_factory=dict)
    """Source -> why its last reading failed."""

    def has_nvidia(self) -> bool:
        """Whether there is, or was, anything that nvidia-smi could tell of."""
        seen = self.devices.value if self.devices else ()
        return bool(self.reported or self.gone or any(is_nvidia_card(device) for device in seen))


def is_nvidia_card(device: PciDevice) -> bool:
    return device.vendor_id == "10de" and device.pci_class.startswith("03")


def add_report(inventory: Inventory, report: Report, now_s: float, *, partial: bool = False) -> Inventory:
    """With a report that was just read. A whole one also says which cards are gone; a partial one only updates."""
    fresh = {entry.card.uuid: Reading(entry, now_s) for entry in report.cards}
    errors = {name: problem for name, problem in inventory.errors.items() if name != "nvidia-smi"}
    if partial:
        return replace(inventory, reported={**inventory.reported, **fresh}, report_s=now_s)
    gone = {uuid: entry for uuid, entry in inventory.gone.items() if uuid not in fresh}
    for uuid, reading in inventory.reported.items():
        if uuid not in fresh:
            gone[uuid] = _gone(reading.value.card)
    return replace(
        inventory,
        reported=fresh,
        report_s=now_s,
        driver_version=report.driver_version,
        cuda_version=report.cuda_version,
        lost={},
        gone=gone,
        errors=errors,
    )


def add_failure(inventory: Inventory, problem: Problem, lost_bus_id: str) -> Inventory:
    """nvidia-smi failed. When it names a card, that one is lost and the others keep their places."""
    if problem.code in _NOTHING_THERE and not inventory.has_nvidia():
        return replace(inventory, errors={k: v for k, v in inventory.errors.items() if k != "nvidia-smi"})
    errors = {**inventory.errors, "nvidia-smi": problem}
    address = pci_address(lost_bus_id)
    lost = {**inventory.lost, address: problem} if address else inventory.lost
    if problem.code == "nvidia_no_devices":
        gone = {uuid: _gone(reading.value.card) for uuid, reading in inventory.reported.items()}
        return replace(inventory, reported={}, gone={**inventory.gone, **gone}, errors=errors)
    return replace(inventory, errors=errors, lost=lost)


def _gone(card: Card) -> Gone:
    problem = Problem(
        code="card_gone",
        message=f"{card.name} at {card.pci} was here and is gone",
        hint=f"journalctl -k | grep NVRM; when it was taken out on purpose: llmgw hardware clear {card.pci}",
        clearable=True,
    )
    return Gone(card.pci, problem)


def build_state(inventory: Inventory, rules: Rules, now_s: float, sampled_at: str) -> HardwareState:
    """What the world is told."""
    adapters = assign_fabrics(inventory.adapters.value if inventory.adapters else (), rules.fabrics)
    return HardwareState(
        cards=_cards(inventory, rules, now_s),
        driver=_driver(inventory),
        devices=list(inventory.devices.value) if inventory.devices else [],
        infiniband=adapters,
        cpu=inventory.cpu.value if inventory.cpu else None,
        numa=list(inventory.numa),
        memory=inventory.memory.value if inventory.memory else None,
        disks=list(inventory.disks.value) if inventory.disks else [],
        links=list(inventory.links.value) if inventory.links else [],
        sources=_sources(inventory, now_s),
        problems=[
            *_node_errors(inventory),
            *(entry.problem for entry in inventory.gone.values()),
            *judge_fabrics(adapters, rules.fabrics),
        ],
        sampled_at=sampled_at,
    )


def _driver(inventory: Inventory) -> Driver | None:
    seen = inventory.driver.value if inventory.driver else None
    if seen is None and not (inventory.reported and inventory.driver_version):
        return None
    seen = seen or Driver(version=inventory.driver_version, flavour="")
    return msgspec.structs.replace(seen, cuda_version=inventory.cuda_version)


def _cards(inventory: Inventory, rules: Rules, now_s: float) -> list[Card]:
    readings = sorted(inventory.reported.values(), key=lambda reading: reading.value.card.index or 0)
    report = Report("", inventory.cuda_version, tuple(reading.value for reading in readings))
    judged = []
    for card in build_cards(report, inventory.details):
        read_s = inventory.reported[card.parent or card.uuid].read_s
        xids = CardXids() if card.parent else inventory.xids.get(card.pci, CardXids())
        problems = judge_card(card, xids, acknowledged_ecc=inventory.acknowledged_ecc.get(card.uuid, 0))
        judged.append(
            msgspec.structs.replace(
                card,
                age_s=round(now_s - read_s, 3),
                xids=sorted(xids.counts.values(), key=lambda entry: entry.xid),
                problems=[*problems, *_from_failure(card, inventory)],
            )
        )
    known = {card.pci for card in judged}
    devices = inventory.devices.value if inventory.devices else ()
    judged += undriven_cards(
        [device for device in devices if is_nvidia_card(device) and device.address not in known],
        inventory.errors.get("nvidia-smi"),
        age_s=round(now_s - inventory.devices.read_s, 3) if inventory.devices else None,
        was_asked=inventory.report_s is not None or "nvidia-smi" in inventory.errors,
    )
    return place_cards(
        judged,
        memory=inventory.memory.value if inventory.memory else None,
        owners=inventory.owners,
        users=inventory.users,
        stale_after_s=rules.stale_after_s,
    )


def _from_failure(card: Card, inventory: Inventory) -> list[Problem]:
    """A lost card is out by itself; a driver that serves nobody takes all of them out."""
    if card.pci in inventory.lost:
        return [inventory.lost[card.pci]]
    error = inventory.errors.get("nvidia-smi")
    return [error] if error is not None and error.blocks and not inventory.lost else []


def _node_errors(inventory: Inventory) -> list[Problem]:
    """What the node should be told of. Without cards nobody misses the driver's messages."""
    has_cards = inventory.has_nvidia()
    return [problem for name, problem in inventory.errors.items() if name != "kernel-log" or has_cards]


def _sources(inventory: Inventory, now_s: float) -> list[Source]:
    read = {
        "nvidia-smi": inventory.report_s,
        "udev": inventory.devices.read_s if inventory.devices else None,
        "infiniband": inventory.adapters.read_s if inventory.adapters else None,
        "cpu": inventory.cpu.read_s if inventory.cpu else None,
        "memory": inventory.memory.read_s if inventory.memory else None,
        "disks": inventory.disks.read_s if inventory.disks else None,
        "links": inventory.links.read_s if inventory.links else None,
        "kernel-log": now_s if inventory.kernel_log_followed else None,
    }
    return [
        Source(
            name=name,
            age_s=None if (at := read[name]) is None else round(now_s - at, 3),
            error=inventory.errors.get(name),
        )
        for name in SOURCES
    ]
