"""Can models be placed on every card? What keeps one out says how to bring it back."""

from collections.abc import Iterator

from core.hardware import Card, Finding
from daemon.hardware.checks.finding import ok, warning
from daemon.hardware.facts import Facts


def check(facts: Facts) -> Iterator[Finding]:
    of_the_node = {source.error.code for source in facts.hardware.sources if source.error is not None}
    for card in facts.hardware.cards:
        own = [problem for problem in card.problems if problem.code not in of_the_node]
        if card.placeable and not own:
            yield ok("cards", f"{_name(card)}: {_free(card)}")
        for problem in own:
            out = " (out of placement)" if problem.blocks else ""
            yield warning("cards", f"{_name(card)}: {problem.message}{out}", problem.hint)
        foreign = [process for process in card.processes if not process.runtime]
        if card.placeable and card.foreign_mib:
            pids = ", ".join(f"{p.name} (pid {p.pid}, {p.user or 'unknown user'})" for p in foreign)
            yield ok("cards", f"{_name(card)}: {card.foreign_mib} MiB are held by others: {pids}")


def _name(card: Card) -> str:
    where = f"card {card.index}" if card.index is not None else card.pci or card.uuid
    return f"{where} {card.card_class or card.name}"


def _free(card: Card) -> str:
    return "free memory is unknown" if card.available_mib is None else f"{card.available_mib} MiB free"
