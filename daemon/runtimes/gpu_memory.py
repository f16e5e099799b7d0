"""Who holds memory of which card: whether a runtime computes where it was placed, and whether an ended one let go.

Pure, over cards as the hardware's samples give them. nvidia-smi does not always list processes (not those of another
PID namespace): where a card's memory is in use and nobody is named, nothing is proved either way.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from core.hardware import Card, CardProcess

_IDLE_CARD_MIB = 600
"""What a card's driver, a display or a compute mode daemon hold without anybody computing."""

_FRESH_S = 5.0
"""Older values are from before the engine loaded: nvidia-smi has not answered since."""

_OFFLOADED = re.compile(r"offloaded (\d+)/(\d+) layers to GPU")
"""llama.cpp, once while it loads."""


class Proof(StrEnum):
    """Whether a runtime computes on its cards."""

    PROVED = "proved"
    REFUTED = "refuted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Compute:
    """What was found, in words for the status or for the failure."""

    proof: Proof
    text: str


def judge_compute(devices: Sequence[str], cards: Iterable[Card], pids: Collection[int], log: Iterable[str]) -> Compute:
    """By what the engine says of itself, and by what the driver says of its processes."""
    layers = [(int(match[1]), int(match[2])) for line in log if (match := _OFFLOADED.search(line))]
    if layers and layers[-1][0] == 0:
        return Compute(Proof.REFUTED, f"its log says that it offloaded 0 of {layers[-1][1]} layers to the GPU")
    mine = [card for card in cards if card.uuid in devices and card.age_s is not None and card.age_s <= _FRESH_S]
    if len(mine) < len(devices):
        return Compute(Proof.UNKNOWN, "the cards could not be read")
    held = {card.uuid: _held_mib(card, pids) for card in mine}
    without = [card for card in mine if held[card.uuid] is None]
    if not without:
        return Compute(Proof.PROVED, " ".join(f"{uuid} ({mib} MiB)" for uuid, mib in held.items()))
    if any(_is_silent(card) for card in without):
        return Compute(Proof.UNKNOWN, "nvidia-smi does not name the processes on its cards")
    names = ", ".join(card.uuid for card in without)
    return Compute(Proof.REFUTED, f"its processes hold no memory on {names}")


def holders(devices: Collection[str], cards: Iterable[Card], pids: Collection[int]) -> list[tuple[Card, CardProcess]]:
    """Which of these processes are still on those cards."""
    return [
        (card, process) for card in cards if card.uuid in devices for process in card.processes if process.pid in pids
    ]


def held_mib(cards: Iterable[Card], pids: Collection[int]) -> int:
    """What these processes hold of all cards together, as far as the driver says."""
    return sum(_held_mib(card, pids) or 0 for card in cards)


def describe_holders(found: Iterable[tuple[Card, CardProcess]]) -> str:
    """`pid 4711 (VLLM::EngineCore) holds 70000 MiB of GPU-…`"""
    return ", ".join(
        f"pid {process.pid} ({process.name}) holds {'?' if process.memory_mib is None else process.memory_mib} MiB"
        f" of {card.uuid}"
        for card, process in found
    )


def _held_mib(card: Card, pids: Collection[int]) -> int | None:
    """Memory of these processes; None: none of them is there. One whose size is not told is there all the same."""
    sizes = [process.memory_mib or 0 for process in card.processes if process.pid in pids]
    return sum(sizes) if sizes else None


def _is_silent(card: Card) -> bool:
    """Something holds memory, and nobody whom we can see is named for it: a pid of another namespace has no user."""
    named_mib = sum(process.memory_mib or 0 for process in card.processes if process.user)
    if card.unified or card.memory_used_mib is None:
        return False
    return card.memory_used_mib - named_mib > _IDLE_CARD_MIB
