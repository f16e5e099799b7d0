"""Can every unit file of ours be read? One that somebody changed by hand is left alone, and its engine not adopted."""

from collections.abc import Iterator

from core.hardware import Finding
from daemon.hardware.checks.finding import warning
from daemon.hardware.facts import Facts


def check(facts: Facts) -> Iterator[Finding]:
    for name, error in facts.unreadable_units:
        yield warning(
            "units",
            f"{name} is not as llmgw writes it, so its engine is left alone: {error}",
            "llmgw runtime-start of its runtime writes it anew and restarts the engine",
        )
