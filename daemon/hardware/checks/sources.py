"""Can everything be read that the other checks rely on? nvidia-smi has a check of its own."""

from collections.abc import Iterator

from core.hardware import Finding
from daemon.hardware.checks.finding import warning
from daemon.hardware.facts import Facts


def check(facts: Facts) -> Iterator[Finding]:
    told = {problem.code for problem in facts.hardware.problems}
    for source in facts.hardware.sources:
        if source.error is not None and source.name != "nvidia-smi" and source.error.code in told:
            yield warning(source.name, source.error.message, source.error.hint)
