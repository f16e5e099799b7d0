"""Is there memory to load anything into?"""

from collections.abc import Iterator

from core.hardware import Finding
from daemon.hardware.checks.finding import ok, warning
from daemon.hardware.facts import Facts

_LITTLE_MIB = 512


def check(facts: Facts) -> Iterator[Finding]:
    memory = facts.hardware.memory
    if memory is None or memory.available_mib is None:
        yield warning("memory", "the kernel does not say how much memory is available", "mount /proc")
    elif memory.available_mib < _LITTLE_MIB:
        remedy = "llmgw runtimes shows what holds it; stop a runtime"
        yield warning("memory", f"only {memory.available_mib} MiB are available", remedy)
    else:
        yield ok("memory", f"{memory.available_mib} of {memory.total_mib} MiB are available")
