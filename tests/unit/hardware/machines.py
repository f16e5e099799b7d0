"""The recorded machines, as the cards that the inventory makes of them."""

from collections.abc import Iterator
from pathlib import Path

from core.hardware import Card
from daemon.hardware.cards import Details, build_cards
from daemon.hardware.nvidia import parse_list, parse_nvlinks, parse_query
from daemon.hardware.nvidia_report import Report, parse_report

SAMPLES = Path(__file__).resolve().parents[2] / "data/nvidia-smi"
MACHINES = ("h100-mig", "v100x2", "gb10", "rtx4090")


def sample(machine: str, name: str) -> str:
    return (SAMPLES / machine / name).read_text("utf-8")


def report_of(machine: str) -> Report:
    return parse_report(sample(machine, "q-x.xml"))


def details_of(machine: str) -> Details:
    return Details(
        {card.uuid: card for card in parse_query(sample(machine, "query-gpu.noheader.nounits.csv"))},
        parse_list(sample(machine, "L.txt")),
        parse_nvlinks(sample(machine, "nvlink-e.txt")),
    )


def cards_of(machine: str) -> tuple[Card, ...]:
    return build_cards(report_of(machine), details_of(machine))


def failures() -> Iterator[tuple[str, int, bytes]]:
    """Name, exit status and output of each recorded failure."""
    for path in sorted((SAMPLES / "failures").glob("*.txt")):
        yield path.stem, int(path.with_suffix(".rc").read_text()), path.read_bytes()
