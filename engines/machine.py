"""What of this machine decides which build it can run: platform, C library, processor features."""

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine as `engines.plan` sees it."""

    platform: str
    """`linux-x86_64`, `linux-aarch64`, …"""
    glibc: tuple[int, int]
    """(0, 0): another C library."""
    cpu_features: frozenset[str]
    """Common to all processors, as /proc/cpuinfo spells them."""


def read_machine(cpuinfo: Path = Path("/proc/cpuinfo")) -> Machine:
    """The machine that we run on. What cannot be read is absent, so that no build is taken on a guess."""
    uname = os.uname()
    try:
        features = parse_cpu_features(cpuinfo.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        features = frozenset()
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        libc = ""
    return Machine(f"{uname.sysname.lower()}-{uname.machine}", parse_glibc(libc), features)


def parse_glibc(text: str) -> tuple[int, int]:
    """`glibc 2.36` -> (2, 36); anything else -> (0, 0)."""
    name, _, version = text.partition(" ")
    numbers = version.split(".")
    if name != "glibc" or len(numbers) < 2 or not all(n.isdecimal() for n in numbers[:2]):
        return (0, 0)
    return (int(numbers[0]), int(numbers[1]))


def parse_cpu_features(cpuinfo: str) -> frozenset[str]:
    """The features that every processor has (hybrid machines differ): x86's `flags`, Arm's `Features`."""
    common: frozenset[str] | None = None
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            words = frozenset(value.split())
            common = words if common is None else common & words
    return common or frozenset()
