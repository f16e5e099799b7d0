"""The file systems that engines, weights and our state lie on.

`statvfs` on a dead network mount never returns, so whoever calls `read_disks` does so in a thread, with a deadline.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from core.hardware import Disk
from daemon.hardware.sysfs import read_number

MOUNTINFO = Path("/proc/self/mountinfo")
_BLOCK_DEVICES = Path("/sys/dev/block")
_ESCAPES = {"\\040": " ", "\\011": "\t", "\\012": "\n", "\\134": "\\"}


@dataclass(frozen=True, slots=True)
class Mount:
    """A line of proc(5)'s mountinfo."""

    point: str
    device_number: str
    """`MAJOR:MINOR`."""
    file_system: str
    source: str


def parse_mounts(text: str) -> tuple[Mount, ...]:
    """Later mounts hide earlier ones on the same point, so order is kept."""
    mounts = []
    for line in text.splitlines():
        left, dash, right = line.partition(" - ")
        fields, kinds = left.split(), right.split()
        if dash and len(fields) >= 6 and len(kinds) >= 2:
            mounts.append(Mount(_unescape(fields[4]), fields[2], kinds[0], _unescape(kinds[1])))
    return tuple(mounts)


def mount_of(path: str, mounts: tuple[Mount, ...]) -> Mount | None:
    """The mount that a path lies on: the longest point that holds it, the last of equals."""
    best: Mount | None = None
    for mount in mounts:
        holds = mount.point == "/" or path == mount.point or path.startswith(mount.point + "/")
        if holds and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


def read_disks(paths: Mapping[str, Path]) -> tuple[Disk, ...]:
    """Purpose -> folder; a folder that does not exist yet is looked for at its nearest parent."""
    try:
        mounts = parse_mounts(MOUNTINFO.read_text("utf-8", "replace"))
    except OSError:
        mounts = ()
    return tuple(_disk(purpose, path, mounts) for purpose, path in paths.items())


def _disk(purpose: str, path: Path, mounts: tuple[Mount, ...]) -> Disk:
    existing = next((folder for folder in (path, *path.parents) if folder.exists()), Path("/"))
    mount = mount_of(str(existing.resolve()), mounts)
    total, free = _sizes(existing)
    return Disk(
        path=str(path),
        purpose=purpose,
        device=mount.source if mount else "",
        file_system=mount.file_system if mount else "",
        total_mib=total,
        free_mib=free,
        rotational=_is_rotational(mount.device_number) if mount else None,
    )


def _sizes(folder: Path) -> tuple[int | None, int | None]:
    """Total MiB, and those free to others than root; None for a file system that is gone or not ours to look at."""
    try:
        sizes = os.statvfs(folder)
    except OSError:
        return None, None
    return sizes.f_blocks * sizes.f_frsize >> 20, sizes.f_bavail * sizes.f_frsize >> 20


def _is_rotational(device_number: str) -> bool | None:
    """Of the disk, or of the disk that a partition is on."""
    device = _BLOCK_DEVICES / device_number
    for queue in (device / "queue/rotational", device / "../queue/rotational"):
        value = read_number(queue)
        if value is not None:
            return value == 1
    return None


def _unescape(text: str) -> str:
    for escape, character in _ESCAPES.items():
        text = text.replace(escape, character)
    return text
