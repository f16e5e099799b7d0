"""The keys that engines demand, read from the files that the route table names.

A missing or unreadable file is no key: the engine then answers 401, which the client sees as a 502 that names
nothing. Files are read again with every table, because an engine that restarts may get a new key.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from core.secret import Secret

_LARGEST = 4096


def read_keys(paths: Iterable[str]) -> tuple[Mapping[str, Secret], list[str]]:
    """Path -> key of every file that can be read, and the paths of those that cannot be used."""
    keys: dict[str, Secret] = {}
    unusable: list[str] = []
    for path in paths:
        key = _read_key(Path(path))
        if key:
            keys[path] = Secret(key)
        else:
            unusable.append(path)
    return keys, unusable


def _read_key(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1).strip()
    except OSError:
        return ""
    text = data.decode("ascii", "replace")
    return text if len(data) <= _LARGEST and text.isascii() and text.isprintable() and " " not in text else ""
