"""What fetches left on the disk, and how what nothing uses goes again.

A unit is what one fetch made: `package/NAME-VERSION`, `https/DIGEST`, `hf/ORG--REPO/COMMIT`. An operator's own paths
are none of ours: they are neither listed nor removed.
"""

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from core.errors import ConflictError
from core.files import lock_file
from engines.sources import HubSource, PackageSource, Source, WebSource
from engines.staging import park


@dataclass(frozen=True, slots=True)
class StoredUnit:
    """One unit."""

    kind: str
    name: str
    path: Path
    lock: Path
    """Held while something is fetched into it."""
    model: str = ""
    """`ORG/REPO` of one that came from Hugging Face."""

    def holds(self, path: Path) -> bool:
        """Whether the path lies in it."""
        return path == self.path or self.path in path.parents


def list_units(weights_dir: Path) -> list[StoredUnit]:
    """Every unit, sorted; also those that are not whole yet."""
    units = [
        StoredUnit(kind, folder.name, folder, folder / ".lock")
        for kind in ("package", "https")
        for folder in _folders(weights_dir / kind)
    ]
    units += [
        StoredUnit("hf", f"{name}@{commit.name[:12]}", commit, model / ".lock", name)
        for model in _folders(weights_dir / "hf")
        for name in (model.name.replace("--", "/", 1),)
        for commit in _folders(model)
        if len(commit.name) == 40
    ]
    return units


def unused_units(units: Iterable[StoredUnit], used: Iterable[Path]) -> list[StoredUnit]:
    """Those in which no path lies that a runtime uses. Pure."""
    paths = list(used)
    return [unit for unit in units if not any(unit.holds(path) for path in paths)]


def units_of(source: Source, units: Iterable[StoredUnit], weights_dir: Path) -> list[StoredUnit]:
    """Those that a fetch of `source` made, whether the file is still in them or not; none for a path."""
    if isinstance(source, PackageSource):
        return [unit for unit in units if unit.path == weights_dir / "package" / source.folder]
    if isinstance(source, WebSource):
        return [unit for unit in units if unit.path == (weights_dir / "https" / source.member).parent]
    if isinstance(source, HubSource):
        folder = weights_dir / "hf" / source.folder
        commits = [unit for unit in units if unit.path.parent == folder]
        pinned = _read_ref(folder / "refs" / source.revision)
        return [unit for unit in commits if unit.path.name == pinned] or commits
    return []


def _read_ref(ref: Path) -> str:
    try:
        return ref.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def remove_unit(unit: StoredUnit) -> bool:
    """Take it away, wholly; False when something is being fetched into it just now. Raises: StorageError."""
    try:
        with lock_file(unit.lock):
            if unit.kind == "hf":
                _forget(unit)
            parked = park(unit.path)
    except ConflictError:
        return False
    shutil.rmtree(parked, ignore_errors=True)
    return True


def _forget(unit: StoredUnit) -> None:
    """No revision means the commit any more; the next fetch asks again."""
    for ref in (unit.path.parent / "refs").glob("*"):
        if ref.is_file() and _read_ref(ref) == unit.path.name:
            ref.unlink(missing_ok=True)


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    except OSError:
        return []
