"""Reports that a worker could not hand over before its end: a file each life, which the next worker sends on.

They keep their number and the name of their worker, so it does no harm when two workers find the same file.
"""

from pathlib import Path

import msgspec

from core.files import ensure_directory, storage_error, write_atomic
from core.usage import UsageReport

_PREFIX = "usage-"
_MOST_FILES = 100
_MOST_BYTES = 16 << 20

_decoder = msgspec.json.Decoder(list[UsageReport])


class Spool:
    """The files of one directory. Blocking."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def write(self, source: str, reports: list[UsageReport]) -> None:
        """Raises: StorageError."""
        ensure_directory(self._directory, mode=0o700)
        write_atomic(self._directory / f"{_PREFIX}{source}.json", msgspec.json.encode(reports), mode=0o600)

    def read(self) -> dict[Path, list[UsageReport]]:
        """What was left behind, by file; a file that is none of ours is removed. Raises: StorageError."""
        found: dict[Path, list[UsageReport]] = {}
        try:
            for path in sorted(self._directory.glob(f"{_PREFIX}*.json"))[:_MOST_FILES]:
                reports = _read(path)
                if reports is None:
                    path.unlink(missing_ok=True)
                else:
                    found[path] = reports
        except OSError as error:
            raise storage_error(self._directory, error) from error
        return found

    def remove(self, path: Path) -> None:
        """It has been sent. Raises: StorageError."""
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise storage_error(path, error) from error


def _read(path: Path) -> list[UsageReport] | None:
    try:
        return _decoder.decode(path.read_bytes()) if path.stat().st_size <= _MOST_BYTES else None
    except FileNotFoundError:
        return []
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
