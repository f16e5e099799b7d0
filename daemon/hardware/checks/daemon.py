"""Does the daemon run? Without it nothing starts, and what runs is not watched."""

from collections.abc import Iterator

from core.hardware import Finding
from daemon.hardware.checks.finding import blocks, ok
from daemon.hardware.facts import Facts


def check(facts: Facts) -> Iterator[Finding]:
    if facts.daemon_runs:
        yield ok("daemon", "the daemon runs")
    else:
        yield blocks("daemon", "the daemon does not run", facts.daemon_hint)
