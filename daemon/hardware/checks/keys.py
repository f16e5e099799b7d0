"""Can the keys that were made here be read? Where they cannot, their clients are all refused."""

from collections.abc import Iterator

from core.hardware import Finding
from daemon.hardware.checks.finding import blocks
from daemon.hardware.facts import Facts


def check(facts: Facts) -> Iterator[Finding]:
    if facts.keys_fault:
        remedy = "mend the file or move it away, then llmgw reload"
        yield blocks("keys", f"no key of llmgw key create holds: {facts.keys_fault}", remedy)
