"""Does an engine run whose gate does not? Then nobody can ask it."""

from collections.abc import Iterator

from core.hardware import Finding
from daemon.hardware.checks.finding import blocks
from daemon.hardware.facts import Facts


def check(facts: Facts) -> Iterator[Finding]:
    for runtime_id, gate in facts.gates_down:
        yield blocks(
            "gates",
            f"the engine of runtime {runtime_id} runs, and its gate ({gate.unit}) is {gate.state}",
            f"journalctl -u {gate.unit}, then llmgw runtime-restart {runtime_id}",
        )
