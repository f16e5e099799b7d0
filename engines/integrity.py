"""Holds what was fetched against the digests under which it was fetched: which files there should be, and each again.

Only looks; `engines.mending` puts right.
"""

import asyncio
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from core.api import Progress
from core.weights import FileState, VerifiedFile
from engines.pypi import ProgressSink
from engines.records import FetchedFile, read_records
from engines.reread import Reading, read_digest
from engines.staging import run_to_end
from engines.stored import StoredUnit

_REPORT_EVERY_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A file that should be there, or is there."""

    unit: StoredUnit
    name: str
    """Its path below the unit's folder."""
    fetched: FetchedFile | None
    """None: no digest of it was recorded."""

    @property
    def path(self) -> Path:
        return self.unit.path / self.name


def list_files(units: Iterable[StoredUnit]) -> list[KeptFile]:
    """Every file of the units: what was recorded, there or not, and what lies there beside it."""
    files = []
    for unit in units:
        records = read_records(unit.path, model=unit.model)
        names = sorted({*records, *_names_below(unit.path)})
        files += [KeptFile(unit, name, records.get(name)) for name in names]
    return files


async def verify_files(files: Sequence[KeptFile], progress: ProgressSink) -> list[VerifiedFile]:
    """Read them all, one after the other. A unit that is pruned meanwhile is left out."""
    total_bytes = sum(_size(file.path) for file in files if file.fetched is not None)
    verified, before_bytes = [], 0
    for file in files:
        found = await verify_file(file, progress, before_bytes=before_bytes, total_bytes=total_bytes)
        before_bytes += found.size_bytes if file.fetched is not None else 0
        if file.unit.path.is_dir():
            verified.append(found)
    return verified


async def verify_file(
    file: KeptFile, progress: ProgressSink, *, before_bytes: int = 0, total_bytes: int | None = None
) -> VerifiedFile:
    """Read one. `before_bytes` of `total_bytes` were read before it."""
    if file.fetched is None:
        return judge(file, Reading(FileState.NO_DIGEST, size_bytes=_size(file.path)))
    loop, told = asyncio.get_running_loop(), -_REPORT_EVERY_BYTES
    found: list[Reading] = []

    def tell(done_bytes: int) -> None:  # in the reading thread
        nonlocal told
        if done_bytes - told >= _REPORT_EVERY_BYTES or done_bytes < told:
            told = done_bytes
            event = Progress(
                step="verify", detail=file.name, done_bytes=before_bytes + done_bytes, total_bytes=total_bytes
            )
            loop.call_soon_threadsafe(progress, event)

    read = partial(read_digest, file.unit.path, file.name, file.fetched.kind, tell)
    await run_to_end(lambda stop: found.append(read(stop)))
    return judge(file, found[0])


def judge(file: KeptFile, reading: Reading) -> VerifiedFile:
    """What a reading says of the file. Pure."""
    expected = file.fetched.digest if file.fetched is not None else ""
    state, problem = reading.state, reading.problem
    if state is FileState.WHOLE and reading.digest != expected:
        state = FileState.DIFFERS
        problem = f"{file.fetched.kind if file.fetched else ''} {expected} was fetched, and {reading.digest} is there"
    if state is FileState.NO_DIGEST:
        problem = "no digest of it was recorded, so nothing can be said of it"
    return VerifiedFile(
        path=str(file.path),
        unit=file.unit.name,
        state=state,
        expected=expected,
        found=reading.digest,
        digest_kind=file.fetched.kind if file.fetched is not None else "",
        size_bytes=reading.size_bytes,
        problem=problem,
    )


def _names_below(root: Path) -> list[str]:
    """Files and links below the folder but for our own, which begin with a dot."""
    names = []
    for folder, folders, files in os.walk(root):
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        folders[:] = [name for name in folders if not name.startswith(".")]
        names += [
            os.path.relpath(os.path.join(folder, name), root) for name in (*files, *links) if not name.startswith(".")
        ]
    return names


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0
