"""What `nvidia-smi` prints, as values: its comma-separated query, its list of cards and its NVLink counters. Pure.

The full report (`-q -x`) has its own file, `nvidia_report.py`; what a failing one says is in `nvidia_failure.py`.
Cells are mapped by position, since printed column names differ from the names in the query (`clocks.sm` prints as
`clocks.current.sm [MHz]`). A cell that is not a number is None, whatever words stand in it: `[N/A]`, `N/A`,
`[Not Supported]`, `[Unknown Error]`, `[GPU requires reset]`, and those that a later driver invents.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from core.errors import DependencyError
from core.hardware import Nvlink

QUERY_FIELDS = (
    *("index", "name", "uuid", "pci.bus_id", "memory.total", "memory.used", "compute_cap", "driver_version"),
    *("utilization.gpu", "utilization.memory", "temperature.gpu", "power.draw", "clocks.sm"),
    *("ecc.errors.uncorrected.volatile.total", "mig.mode.current"),
)
"""What is asked of `--query-gpu`. The report lacks the compute capability, and hides which value waits for a reset."""

QUERY_ARGV = (f"--query-gpu={','.join(QUERY_FIELDS)}", "--format=csv,noheader,nounits")
LIST_ARGV = ("-L",)
NVLINK_ARGV = ("nvlink", "-e")

_NUMBER = re.compile(r"\s*(-?\d{1,15}(?:\.\d{1,15})?)(?:\s|$)")
"""More digits than any value has: a longer number is garbage."""
_BUS_ID = re.compile(r"([0-9A-Fa-f]{4,8}):([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})(?:\.([0-7]))?")
_LISTED_CARD = re.compile(r"GPU (\d+): (.*) \(UUID: (GPU-[0-9A-Za-z-]+)\)")
_LISTED_INSTANCE = re.compile(r"\s+MIG (\S+)\s+Device\s+(\d+):\s*\(UUID: (MIG-[0-9A-Za-z/-]+)\)")
_NVLINK = re.compile(r"\s+Link (\d+): (Replay|Recovery|CRC) Errors: (\d+)\s*$")
_RESET_NEEDED = "requires reset"


class OutputUnreadable(DependencyError):
    """nvidia-smi ended well and printed something else than it should."""

    code = "nvidia_smi_unreadable"

    def __init__(self, what: str) -> None:
        super().__init__(
            f"nvidia-smi printed {what}", hint="run it by hand; check hardware.nvidiaSmi and the driver's version"
        )


@dataclass(frozen=True, slots=True)
class QueriedCard:
    """A row of the query."""

    index: int | None
    name: str
    uuid: str
    pci: str
    compute_capability: str
    needs_reset: bool
    """The driver refuses a value until the card is reset."""


@dataclass(frozen=True, slots=True)
class ListedInstance:
    """A MIG instance as `-L` lists it; the report has no UUIDs of instances."""

    index: int
    profile: str
    uuid: str


def number(cell: str | None) -> float | None:
    """`97 %`, `311.42 W`, `81559 MiB` and `97` -> the number; everything else -> None."""
    match = _NUMBER.match(cell or "")
    return float(match[1]) if match else None


def whole(cell: str | None) -> int | None:
    value = number(cell)
    return None if value is None else int(value)


def word(cell: str | None) -> str:
    """The cell's text; empty for the marks of a missing value."""
    text = (cell or "").strip()
    return "" if text in ("N/A", "None", "Unknown Error", "ERR!") or text.startswith("[") else text


def pci_address(bus_id: str) -> str:
    """`00000000:19:00.0` and `0000:19:00` -> `0000:19:00.0`, as the kernel names it; anything else -> empty."""
    match = _BUS_ID.fullmatch(bus_id.strip())
    if match is None:
        return ""
    return f"{int(match[1], 16):04x}:{match[2]}:{match[3]}.{match[4] or '0'}".lower()


def parse_query(text: str) -> tuple[QueriedCard, ...]:
    """The rows of `QUERY_ARGV`. Raises: OutputUnreadable."""
    return tuple(_queried(row) for row in _rows(text, len(QUERY_FIELDS)))


def _queried(cells: Sequence[str]) -> QueriedCard:
    index, name, uuid, bus_id = cells[:4]
    capability = cells[QUERY_FIELDS.index("compute_cap")]
    if not uuid.startswith("GPU-"):
        raise OutputUnreadable(f"a card without a UUID: {name[:60]!r}")
    return QueriedCard(
        index=whole(index),
        name=name,
        uuid=uuid,
        pci=pci_address(bus_id),
        compute_capability=capability if number(capability) is not None else "",
        needs_reset=any(_RESET_NEEDED in cell for cell in cells),
    )


def _rows(text: str, width: int) -> Iterator[list[str]]:
    for line in text.splitlines():
        if not line.strip():
            continue
        cells = [cell.strip() for cell in line.split(", ")]
        if len(cells) != width:
            raise OutputUnreadable(f"{len(cells)} columns where {width} were asked for: {line[:80]!r}")
        yield cells


def parse_list(text: str) -> Mapping[str, tuple[ListedInstance, ...]]:
    """UUID of each card -> its MIG instances. Raises: OutputUnreadable for a line that is neither."""
    found: dict[str, tuple[ListedInstance, ...]] = {}
    card = ""
    for line in text.splitlines():
        if match := _LISTED_CARD.match(line):
            card = match[3]
            found[card] = ()
        elif (match := _LISTED_INSTANCE.match(line)) and card:
            found[card] = (*found[card], ListedInstance(int(match[2]), match[1], match[3]))
        elif line.strip():
            raise OutputUnreadable(f"an unknown line in its list of cards: {line[:80]!r}")
    return found


def parse_nvlinks(text: str) -> Mapping[str, tuple[Nvlink, ...]]:
    """UUID of each card -> the error counters of its links, from `nvlink -e`; without links it prints nothing."""
    counters: dict[str, dict[int, dict[str, int]]] = {}
    card = ""
    for line in text.splitlines():
        if match := _LISTED_CARD.match(line):
            card = match[3]
            counters[card] = {}
        elif (match := _NVLINK.match(line)) and card:
            counters[card].setdefault(int(match[1]), {})[match[2]] = int(match[3])
    return {
        uuid: tuple(
            Nvlink(
                link=link,
                replay_errors=counts.get("Replay"),
                recovery_errors=counts.get("Recovery"),
                crc_errors=counts.get("CRC"),
            )
            for link, counts in sorted(links.items())
        )
        for uuid, links in counters.items()
    }
