"""What of this machine decides which build it can run: platform, C library, Python, processor, cards and driver."""

import os
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from core.hardware import HardwareState

_AMD = "1002"
_INTEL = "8086"
_DISPLAY_CLASS = "03"
"""First byte of the PCI class of everything that draws or computes."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A card of NVIDIA's that the driver knows."""

    name: str
    capability: tuple[int, int]
    """Compute capability."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine as `engines.plan` sees it."""

    platform: str
    """`linux-x86_64`, `linux-aarch64`, …"""
    glibc: tuple[int, int]
    """(0, 0): another C library."""
    cpu_features: frozenset[str]
    """Common to all processors, as /proc/cpuinfo spells them."""
    python: tuple[int, int] = (3, 11)
    """Of the interpreter that environments are made with."""
    gpus: tuple[Gpu, ...] = ()
    driver: tuple[int, ...] = ()
    """NVIDIA's, `(580, 95, 5)`; empty: none."""
    cuda: tuple[int, int] = (0, 0)
    """Newest CUDA that the driver serves: what it can compile from PTX."""
    other_gpus: tuple[str, ...] = ()
    """Cards of other makers with a driver: `AMD`, `Intel`."""


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
    platform = f"{uname.sysname.lower()}-{uname.machine}"
    return Machine(platform, parse_glibc(libc), features, python=sys.version_info[:2])


def add_hardware(machine: Machine, hardware: HardwareState) -> Machine:
    """The machine with its cards. Instances of a card in MIG mode count as the card that they are part of. Pure.

    A card that is left out of placement for a while (a hot one, somebody else's process) is a card all the same: a
    build is chosen for months.
    """
    gpus = [
        Gpu(card.name, capability)
        for card in hardware.cards
        if card.uuid and (capability := parse_version(card.compute_capability)[:2]) and len(capability) == 2
    ]
    driver = hardware.driver
    return replace(
        machine,
        gpus=tuple(dict.fromkeys(gpus)),
        driver=parse_version(driver.version) if driver else (),
        cuda=_pair(parse_version(driver.cuda_version)) if driver else (0, 0),
        other_gpus=_other_gpus(hardware),
    )


def _other_gpus(hardware: HardwareState) -> tuple[str, ...]:
    makers = {_AMD: "AMD", _INTEL: "Intel"}
    return tuple(
        dict.fromkeys(
            makers[device.vendor_id.removeprefix("0x")]
            for device in hardware.devices
            if device.driver
            and device.vendor_id.removeprefix("0x") in makers
            and device.pci_class.removeprefix("0x").startswith(_DISPLAY_CLASS)
        )
    )


def parse_version(text: str) -> tuple[int, ...]:
    """`580.95.05` -> (580, 95, 5); the numbers that it begins with, none for anything else."""
    match = re.match(r"\d{1,6}(\.\d{1,6})*", text)
    return tuple(int(number) for number in match.group().split(".")) if match else ()


def _pair(version: tuple[int, ...]) -> tuple[int, int]:
    return (version[0], version[1] if len(version) > 1 else 0) if version else (0, 0)


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
