"""A card's class: the short name by which recipes and placement ask for it. Pure.

`NVIDIA H100 80GB HBM3` -> `h100-80g`, `NVIDIA GeForce RTX 4090` -> `rtx-4090`, an instance of an A100 ->
`a100-80g-mig-3g.40gb`. Words that only say how a card is mounted are left out; the size of its memory stays where
one name was sold with several.
"""

import re

_NOISE = re.compile(
    r"^(nvidia|geforce|tesla|quadro|sxm\d*|pcie|hbm\d\w*|generation|workstation|server|edition|gpu|\(tm\)|mig)$"
)
_SIZE = re.compile(r"^(\d+)gb$")
_SOLD_IN_GIB = {"p100": (12, 16), "v100": (16, 32), "a100": (40, 80), "h100": (64, 80, 94, 96), "a30": (24,)}
_UNIFIED = re.compile(r"\b(GB10|N1X|Orin|Thor|Xavier)\b", re.IGNORECASE)
_NOT_A_NAME = re.compile(r"[^a-z0-9.+-]+")


def card_class(name: str, memory_total_mib: int | None) -> str:
    """The class of a whole card."""
    words = [word for word in re.split(r"[\s_-]+", name.lower()) if word and not _NOISE.match(word)]
    sizes = [match[1] for word in words if (match := _SIZE.match(word))]
    rest = [word for word in words if not _SIZE.match(word)]
    parts = [*rest, *(f"{size}g" for size in sizes[:1])]
    if not sizes and rest and rest[0] in _SOLD_IN_GIB and memory_total_mib is not None:
        gib = memory_total_mib / 1024
        parts.append(f"{min(_SOLD_IN_GIB[rest[0]], key=lambda size: abs(size - gib))}g")
    return _NOT_A_NAME.sub("", "-".join(parts))


def instance_class(parent_class: str, profile: str) -> str:
    """The class of a MIG instance."""
    return f"{parent_class}-mig-{_NOT_A_NAME.sub('', profile.lower())}"


def has_unified_memory(name: str) -> bool:
    """Whether the card computes in the machine's own memory.

    That is a property of the part: a GB10 reports no memory at all, an N1X a small wrong total.
    """
    return bool(_UNIFIED.search(name))
