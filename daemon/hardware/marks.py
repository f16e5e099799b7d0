"""What an operator has cleared: past events that no longer keep a card out of placement. Kept until the next boot.

The kernel's log still holds the events, and a daemon that starts reads it from the beginning, so the mark must
outlive the daemon. It names the boot, because counters and times begin anew with the next one.
"""

from pathlib import Path

import msgspec

from core.files import ensure_directory, write_atomic
from core.message import Message
from daemon.hardware.sysfs import read_text

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Marks(Message, frozen=True, kw_only=True):
    """Of one boot."""

    boot_id: str
    events_until_s: dict[str, float] = {}
    """PCI address -> seconds after boot: messages until then are forgotten."""
    ecc: dict[str, int] = {}
    """UUID -> uncorrectable errors that were seen and accepted."""


def read_marks(path: Path, boot_id: str) -> Marks:
    """The marks of this boot; a file of another boot, or one that cannot be read, is no mark at all."""
    try:
        marks = msgspec.json.decode(path.read_bytes(), type=Marks)
    except (OSError, msgspec.MsgspecError, RecursionError):
        return Marks(boot_id=boot_id)
    return marks if marks.boot_id == boot_id else Marks(boot_id=boot_id)


def write_marks(path: Path, marks: Marks) -> None:
    """Raises: StorageError."""
    ensure_directory(path.parent)
    write_atomic(path, msgspec.json.encode(marks), mode=0o600)


def read_boot_id(path: Path = BOOT_ID) -> str:
    return read_text(path)
