"""Do the services of others answer that models are served by? Only what real requests met there is known."""

from collections.abc import Iterator

from core.hardware import Finding
from daemon.hardware.checks.finding import blocks, warning
from daemon.hardware.facts import Facts


def check(facts: Facts) -> Iterator[Finding]:
    for backend in facts.backends:
        remedy = f"llmgw backends {backend.id}"
        if backend.state == "failed":
            yield blocks("backends", f"backend {backend.id} cannot be asked: {backend.reason}", remedy)
        elif backend.state == "out":
            yield warning("backends", f"backend {backend.id} failed last: {backend.last_error or 'unknown'}", remedy)
