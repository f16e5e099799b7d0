"""Is there room for engines and weights, and can the state be written?"""

from collections.abc import Iterator

from core.hardware import Disk, Finding
from daemon.hardware.checks.finding import blocks, ok, warning
from daemon.hardware.facts import Facts

_FULL_MIB = 100
_LITTLE_MIB = 1024


def check(facts: Facts) -> Iterator[Finding]:
    by_device: dict[str, list[Disk]] = {}
    for disk in facts.hardware.disks:
        by_device.setdefault(disk.device or disk.path, []).append(disk)
    for disks in by_device.values():
        yield _judge(disks[0], ", ".join(disk.purpose for disk in disks))


def _judge(disk: Disk, purposes: str) -> Finding:
    what = f"{disk.path} ({purposes})"
    remedy = "make room, or set paths.engines and paths.weights to another disk"
    if disk.free_mib is None:
        return warning("disks", f"free space of {what} cannot be read", f"df {disk.path}")
    if disk.free_mib < _FULL_MIB:
        return blocks("disks", f"the disk of {what} is full: {disk.free_mib} MiB are left", remedy)
    if disk.free_mib < _LITTLE_MIB:
        return warning("disks", f"the disk of {what} is almost full: {disk.free_mib} MiB are left", remedy)
    return ok("disks", f"{what}: {disk.free_mib} MiB free")
