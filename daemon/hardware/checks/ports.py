"""Do the engines' ports stay ours? The kernel hands out ports of its ephemeral range to anybody."""

from collections.abc import Iterator

from core.hardware import Finding
from daemon.hardware.checks.finding import ok, warning
from daemon.hardware.facts import Facts


def check(facts: Facts) -> Iterator[Finding]:
    if facts.config is None:
        return
    low, high = facts.config.ports.backends
    bounds = facts.ephemeral_ports.split()
    if len(bounds) != 2 or not all(bound.isdecimal() for bound in bounds):
        return
    first, last = int(bounds[0]), int(bounds[1])
    if high < first or low > last or is_reserved(low, high, facts.reserved_ports):
        yield ok("engine ports", f"{low}-{high} are handed to nobody else")
    else:
        yield warning(
            "engine ports",
            f"the kernel may hand {low}-{high} to any program (its range is {first}-{last})",
            f"sysctl net.ipv4.ip_local_reserved_ports={low}-{high}, or set ports.backends",
        )


def is_reserved(low: int, high: int, reserved: str) -> bool:
    """Whether one of the kernel's reserved ranges holds the whole of ours."""
    for part in reserved.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdecimal() and int(first) <= low and high <= int(last or first):
            return True
    return False
