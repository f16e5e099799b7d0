"""The key that one engine demands: made once and kept, since a running engine knows only the key it started with.

It lies in a file that the gateway's group may read and that reaches the unit as a credential. A file that holds
anything else than a key of ours is no key: it is made anew with the next start.
"""

import re
import secrets
from pathlib import Path

from core.files import ensure_directory, write_atomic

_KEY = re.compile(rb"(sk-[0-9a-f]{48})\n")
_READ_BYTES = 64


def read_key(path: Path) -> str:
    """The key; empty when there is none."""
    try:
        with path.open("rb") as file:
            match = _KEY.fullmatch(file.read(_READ_BYTES))
    except OSError:
        return ""
    return match[1].decode("ascii") if match else ""


def ensure_key(path: Path, *, gid: int) -> None:
    """Make the file unless it holds a key. Raises: StorageError."""
    if not read_key(path):
        ensure_directory(path.parent, mode=0o750, gid=gid)
        write_atomic(path, f"sk-{secrets.token_hex(24)}\n", mode=0o640, gid=gid)
