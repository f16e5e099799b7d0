"""The days on disk: `YYYY-MM-DD.json` below one directory. Blocking; the ledger calls it in a thread.

A file that cannot be read as a day is set aside under another name and told once; the day begins anew.
"""

import os
from datetime import date
from pathlib import Path

from core.files import ensure_directory, storage_error, write_atomic
from core.log import EventLogger
from daemon.usage.day import Day, parse_day

_MOST_BYTES = 64 << 20


class DayStore:
    """One directory of days."""

    def __init__(self, directory: Path, log: EventLogger) -> None:
        self._directory = directory
        self._log = log

    def read(self, name: str) -> Day:
        """The day; an empty one when there is none. Raises: StorageError when it can be neither read nor set aside."""
        path = self._path(name)
        try:
            if path.stat().st_size > _MOST_BYTES:
                raise ValueError(f"more than {_MOST_BYTES} bytes")
            return parse_day(name, path.read_bytes())
        except FileNotFoundError:
            return Day(name)
        except (OSError, ValueError) as error:
            self._set_aside(path, error)
            return Day(name)

    def has(self, name: str) -> bool:
        """Whether there is a file of this day, readable or not."""
        return self._path(name).exists()

    def write(self, name: str, data: bytes) -> None:
        """Raises: StorageError."""
        ensure_directory(self._directory, mode=0o700)
        write_atomic(self._path(name), data, mode=0o600)

    def names(self) -> list[str]:
        """The days that there are, oldest first. Raises: StorageError."""
        try:
            found = [entry.removesuffix(".json") for entry in os.listdir(self._directory) if entry.endswith(".json")]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise storage_error(self._directory, error) from error
        return sorted(name for name in found if is_day(name))

    def remove_before(self, first: str) -> None:
        """Forget the days before this one. Raises: StorageError."""
        for name in self.names():
            if name < first:
                path = self._path(name)
                try:
                    path.unlink(missing_ok=True)
                except OSError as error:
                    raise storage_error(path, error) from error

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}.json"

    def _set_aside(self, path: Path, why: Exception) -> None:
        for number in range(1, 100):
            aside = path.with_name(f"{path.name}.broken-{number}")
            if not aside.exists():
                break
        try:
            path.rename(aside)
        except OSError as error:
            raise storage_error(path, error) from error
        self._log.error("usage_day_set_aside", path=path, error=str(why), now=aside)


def is_day(name: str) -> bool:
    """Whether this is a date as we write it."""
    try:
        return date.fromisoformat(name).isoformat() == name
    except ValueError:
        return False
