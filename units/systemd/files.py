"""Our unit files in systemd's directory: read, written and removed, one by one and atomically.

Only names that we generate are touched, and only plain files: a symlink of that name (a mask, somebody's alias) is
neither followed nor read, and writing replaces it.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from core.errors import BugError
from core.files import ensure_directory, storage_error, sync_directory, write_atomic
from units.backend import UnitFileChange
from units.names import ENGINE_PREFIX, GATE_PREFIX, is_generated

DROP_IN = "50-llmgw.conf"
"""Drop-ins of an operator (`systemctl edit` writes override.conf) sort after ours and win."""

MAX_FILE_BYTES = 4 * 1024 * 1024


def read_unit_files(directory: Path) -> dict[str, str]:
    """Name -> text of every generated unit file. Bytes that are no text come as U+FFFD: the record then says no."""
    files: dict[str, str] = {}
    try:
        names = sorted(entry.name for entry in os.scandir(directory) if entry.is_file(follow_symlinks=False))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise storage_error(directory, error) from error
    for name in filter(is_generated, names):
        try:
            with (directory / name).open("rb") as file:
                files[name] = file.read(MAX_FILE_BYTES).decode("utf-8", "replace")
        except FileNotFoundError:
            continue  # removed since
        except OSError as error:
            raise storage_error(directory / name, error) from error
    return files


def write_unit_files(directory: Path, changes: Sequence[UnitFileChange]) -> None:
    """Write and remove, in order. Raises: StorageError at the first that fails; trying all again is safe."""
    for change in changes:
        if not is_generated(change.name):
            raise BugError(f"{change.name!r} is not the name of a generated unit", code="foreign_unit_name")
    ensure_directory(directory)
    _remove_leftovers(directory)
    for change in changes:
        path = directory / change.name
        if change.text is not None:
            write_atomic(path, change.text)
        else:
            _remove(path)


def write_drop_in(directory: Path, unit: str, text: str | None) -> bool:
    """Our drop-in of a static unit of the package: written, or removed with None. Whether that changed anything."""
    path = directory / f"{unit}.d" / DROP_IN
    try:
        before = path.read_text() if path.is_file() else None
    except OSError as error:
        raise storage_error(path, error) from error
    if before == text:
        return False
    if text is None:
        _remove(path)
        return True
    ensure_directory(path.parent)
    write_atomic(path, text)
    return True


def _remove_leftovers(directory: Path) -> None:
    """Temporary files of a writer that was killed half-way; there is only one writer at a time."""
    for prefix in (ENGINE_PREFIX, GATE_PREFIX):
        for path in directory.glob(f".{prefix}*.new"):
            _remove(path)


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
        sync_directory(path.parent)
    except OSError as error:
        raise storage_error(path, error) from error
