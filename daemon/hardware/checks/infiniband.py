"""Are the adapters' ports up, and are the declared fabrics what is plugged in?"""

from collections.abc import Iterator

from core.hardware import Finding
from daemon.hardware.checks.finding import blocks, ok, warning
from daemon.hardware.facts import Facts


def check(facts: Facts) -> Iterator[Finding]:
    for adapter in facts.hardware.infiniband:
        for port in adapter.ports:
            for problem in port.problems:
                yield warning("infiniband", problem.message, problem.hint)
            if not port.problems:
                yield ok("infiniband", f"{adapter.name} port {port.number}: {port.state or 'state unknown'}")
    for problem in facts.hardware.problems:
        if problem.code in ("fabric_adapter_missing", "fabric_down"):
            yield blocks("infiniband", problem.message, problem.hint)
