"""Which cards a runtime could be given, best first. Pure; admission tries them in this order.

Cards come from the hardware's placement: one that is out (MIG with nothing carved, an XID, stale data) is not here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from core.hardware import Card

_CONTROL_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
_MIG_NODES = "char-nvidia-caps"
_MAX_CHOICES = 16
_NOT_OURS = frozenset({"card_without_driver", "card_given_away"})
"""Cards that draw a desktop without NVIDIA's driver, or belong to a virtual machine: as if they were not there."""


@dataclass(frozen=True, slots=True)
class Devices:
    """What the config asks for. `count` cards, or exactly `names`."""

    count: int = 0
    names: tuple[str, ...] = ()

    @property
    def wants_any(self) -> bool:
        return self.count > 0 or bool(self.names)


@dataclass(frozen=True, slots=True)
class Placement:
    """Where admission put a runtime."""

    devices: tuple[str, ...] = ()
    """Uuids, in the order that the engine sees them."""
    cards: tuple[Card, ...] = ()
    """All cards of the machine."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """Device nodes that the unit may open."""
        chosen = [card for uuid in self.devices if (card := find_card(uuid, self.cards)) is not None]
        return device_nodes(chosen, self.cards)


CPU = Placement()


def wanted_devices(setting: int | Sequence[str] | None, *, engine_can: bool, cards: Sequence[Card]) -> Devices:
    """The `gpus` setting with its default: one card where there is one and the engine can use it.

    A card that is out of placement counts: the start is refused with the reason, and `gpus: 0` computes on the CPU.
    """
    if isinstance(setting, int):
        return Devices(count=setting)
    if setting is not None:
        return Devices(count=len(setting), names=tuple(setting))
    return Devices(count=1 if engine_can and any(_is_meant_for_us(card) for card in cards) else 0)


def _is_meant_for_us(card: Card) -> bool:
    """Whether its being out of placement must stop a start instead of making it compute on the CPU unnoticed."""
    return card.placeable or any(p.blocks and p.code not in _NOT_OURS for p in card.problems)


def choices(wanted: Devices, cards: Sequence[Card]) -> list[tuple[Card, ...]]:
    """Sets of cards that would do, the emptiest first. Empty: there are not so many cards that may be used."""
    usable = [card for card in cards if card.placeable]
    if wanted.names:
        named = [find_card(name, usable) for name in wanted.names]
        found = [card for card in named if card is not None]
        return [tuple(found)] if len(found) == len(named) else []
    if wanted.count == 0 or len(usable) < wanted.count:
        return []
    by_room = sorted(usable, key=lambda card: (-(card.available_mib or 0), card.uuid))
    windows = [tuple(by_room[at : at + wanted.count]) for at in range(len(by_room) - wanted.count + 1)]
    return windows[:_MAX_CHOICES]


def find_card(name: str, cards: Iterable[Card]) -> Card | None:
    """By uuid or index."""
    return next((card for card in cards if name == card.uuid or name == str(card.index)), None)


def device_nodes(cards: Sequence[Card], all_cards: Sequence[Card]) -> tuple[str, ...]:
    """`DeviceAllow=` for exactly these cards, and the control nodes that every CUDA process opens."""
    if not cards:
        return ()
    by_uuid = {card.uuid: card for card in all_cards}
    whole = [by_uuid.get(card.parent, card) if card.parent else card for card in cards]
    nodes = [f"/dev/nvidia{card.index}" for card in whole if card.index is not None]
    caps = (_MIG_NODES,) if any(card.parent for card in cards) else ()
    return (*dict.fromkeys(nodes), *_CONTROL_NODES, *caps)
