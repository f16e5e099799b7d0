"""The NVIDIA kernel module, from /proc/driver/nvidia/version. Both flavours write their version differently:

NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.82.07  Wed Aug 27 …
NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.82.07  Release Build  …
"""

import re
from pathlib import Path

from core.hardware import Driver

VERSION_FILE = Path("/proc/driver/nvidia/version")

_MODULE = re.compile(r"NVRM version:.*?(Open )?Kernel Module\b.*?\s(\d+\.\d+(?:\.\d+)?)\b")


def parse_driver(text: str) -> Driver | None:
    match = _MODULE.search(text)
    return Driver(version=match[2], flavour="open" if match[1] else "proprietary") if match else None


def read_driver(path: Path = VERSION_FILE) -> Driver | None:
    """The loaded module; None: none is."""
    try:
        return parse_driver(path.read_text("utf-8", "replace"))
    except OSError:
        return None
