"""Small files of /sys and /proc: a value, or nothing. Devices vanish between listing and reading; that is no error."""

import re
from pathlib import Path

_PCI_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def read_text(path: Path) -> str:
    """The file's text without the white space around it; empty where it cannot be read."""
    try:
        return path.read_text("utf-8", "replace").strip()
    except OSError:
        return ""


def read_number(path: Path) -> int | None:
    """A decimal or `0x` number; None where there is none."""
    try:
        return int(read_text(path), 0)
    except ValueError:
        return None


def list_names(path: Path) -> list[str]:
    """Names in a folder, in order; none where it cannot be listed."""
    try:
        return sorted(entry.name for entry in path.iterdir())
    except OSError:
        return []


def pci_address_of(device: Path) -> str:
    """The PCI address at the end of a `device` link; empty for a device that is on no PCI bus."""
    try:
        name = device.resolve().name
    except OSError:
        return ""
    return name if _PCI_ADDRESS.fullmatch(name) else ""
