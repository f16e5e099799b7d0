"""Which files lie in ComfyUI's folders, read anew each time: no count is kept that a crash could make wrong.

A file counts in whole blocks, and never for less than one: a million empty files fill a disk, too.
Only callers' folders and the temporary one are looked at; what an operator puts beside them is none of ours. Links are
not followed.
"""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from core.caller import is_mark
from core.files import storage_error

FOLDERS = ("output", "input", "temp")
BLOCK_BYTES = 4096
_STALE_FOLDER_S = 3600.0


@dataclass(frozen=True, slots=True)
class Kept:
    """One file."""

    folder: str
    """`output`, `input` or `temp`."""
    path: str
    """Below that folder."""
    size_bytes: int
    changed_s: float
    """Since the epoch."""

    @property
    def owner(self) -> str:
        """The caller's mark; empty in the temporary folder, where names say nothing."""
        return "" if self.folder == "temp" else self.path.partition("/")[0]


@dataclass(frozen=True, slots=True)
class Stock:
    """What there was at one time."""

    files: tuple[Kept, ...]
    free_bytes: int
    """On the disk, for others than root."""

    @property
    def total_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


def read_stock(base: Path) -> Stock:
    """Raises: StorageError when the disk cannot be asked. What vanishes meanwhile is not there."""
    found: list[Kept] = []
    for folder in FOLDERS:
        root = base / folder
        for top in _entries(root):
            if folder == "temp" and not top.is_dir(follow_symlinks=False):
                found.extend(_read(root, folder, top))
            elif folder == "temp" or is_mark(top.name):
                found.extend(kept for entry in _walk(top) for kept in _read(root, folder, entry))
    try:
        return Stock(tuple(found), shutil.disk_usage(base).free)
    except OSError as error:
        raise storage_error(base, error) from error


def remove_file(base: Path, file: Kept) -> bool:
    """Whether it is gone by our doing. Raises: StorageError."""
    path = base / file.folder / file.path
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise storage_error(path, error) from error
    return True


def remove_empty_folders(base: Path, now_s: float) -> None:
    """Those of callers that nothing was put into for a while: a node may be about to use a new one."""
    for folder in ("output", "input"):
        for top in _entries(base / folder):
            if is_mark(top.name) and top.is_dir(follow_symlinks=False):
                for path, _, _ in os.walk(top.path, topdown=False):
                    try:
                        if now_s - os.stat(path, follow_symlinks=False).st_mtime > _STALE_FOLDER_S:
                            os.rmdir(path)
                    except OSError:
                        continue


def _entries(folder: str | Path) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _walk(top: "os.DirEntry[str]") -> Iterator["os.DirEntry[str]"]:
    """Everything below a folder that is no folder."""
    waiting = [top]
    while waiting:
        entry = waiting.pop()
        if entry.is_dir(follow_symlinks=False):
            waiting.extend(_entries(entry.path))
        elif entry is not top:
            yield entry


def _read(root: Path, folder: str, entry: "os.DirEntry[str]") -> Iterator[Kept]:
    try:
        told = entry.stat(follow_symlinks=False)
    except OSError:
        return
    size = max(-(-told.st_size // BLOCK_BYTES), 1) * BLOCK_BYTES
    yield Kept(folder, os.path.relpath(entry.path, root), size, told.st_mtime)
