"""The last good route table on disk, for a gateway that starts while the daemon is away.

It holds hashes of keys and paths of key files, never a key. What cannot be read is treated as absent: the daemon
sends the truth as soon as it is there.
"""

from pathlib import Path

import msgspec

from core.api import RouteTable
from core.files import ensure_directory, write_atomic

_LARGEST = 64 << 20


class SnapshotFile:
    """`routes.json` in the gateway's state directory, readable by its owner alone."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "routes.json"

    def read(self) -> RouteTable | None:
        """The stored table, or None when there is none that can be understood."""
        try:
            if self.path.stat().st_size > _LARGEST:
                return None
            return msgspec.json.decode(self.path.read_bytes(), type=RouteTable)
        except (OSError, msgspec.MsgspecError, RecursionError, UnicodeError):
            return None

    def write(self, table: RouteTable) -> None:
        """Replace the stored table. Blocks for an fsync. Raises: StorageError."""
        ensure_directory(self.path.parent, mode=0o700)
        write_atomic(self.path, msgspec.json.encode(table), mode=0o600)
