"""Did a runtime fail?"""

from collections.abc import Iterator

from core.hardware import Finding
from daemon.hardware.checks.finding import blocks
from daemon.hardware.facts import Facts


def check(facts: Facts) -> Iterator[Finding]:
    for runtime in facts.failed_runtimes:
        yield blocks(
            "runtimes", f"runtime {runtime.id} failed: {runtime.reason}", runtime.hint or f"llmgw logs {runtime.id}"
        )
