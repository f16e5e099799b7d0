"""Puts a file right that is not what was fetched: sets it aside, fetches it again, and only then lets the old one go.

Under the unit's lock, and after one more reading there: another process may have mended it. Interrupted at any moment,
the file is missing or whole, never broken under its name, and the same again goes on. A whole model that lacks a file
does not count as here meanwhile: its `.complete` is renamed.
"""

import contextlib
import hashlib
import os
import secrets
from pathlib import Path

import msgspec

from core.errors import LlmgwError
from core.files import ensure_directory
from core.http.client import HttpClient
from core.weights import FileState, VerifiedFile
from engines.download import Download, download
from engines.integrity import KeptFile, verify_file
from engines.origins import Origins
from engines.pypi import ProgressSink
from engines.records import COMPLETE, MENDING, FetchedFile, parse_complete
from engines.sources import HubSource, PackageSource, WebSource, parse_source
from engines.staging import hold_lock, move
from engines.weights import take_member

_LOCK_TIMEOUT_S = 24 * 3600.0
_BROKEN = ".broken-"
MENDABLE = frozenset({FileState.DIFFERS, FileState.MISSING, FileState.NOT_A_FILE, FileState.UNREADABLE})


async def mend_file(file: KeptFile, found: VerifiedFile, origins: Origins, progress: ProgressSink) -> VerifiedFile:
    """The file as it is afterwards: MENDED, or as it was found, with what stood in the way in `problem`."""
    unfinished = found.state is FileState.WHOLE and _is_unfinished(file)
    if found.state not in MENDABLE and not unfinished:
        return found
    if file.fetched is None or not file.fetched.source:
        return msgspec.structs.replace(found, remedy="where it came from is not known: remove it and fetch it again")
    try:
        async with hold_lock(file.unit.lock, timeout_s=_LOCK_TIMEOUT_S, what=f"work on {file.unit.name}"):
            again = await verify_file(file, progress)
            if again.state not in MENDABLE:
                _conclude(file)
                return again
            _doubt_model(file)
            set_aside(file.unit.path, file.name)
            await _fetch_again(file, file.fetched, origins, progress)
            _conclude(file)
    except LlmgwError as error:
        return msgspec.structs.replace(
            found, problem=f"{found.problem}; not mended: {error.message} [{error.code}]", remedy=error.hint
        )
    return msgspec.structs.replace(again, state=FileState.MENDED, remedy="")


def _is_unfinished(file: KeptFile) -> bool:
    """Whether somebody who was mending was killed between the new file and the end."""
    root = file.unit.path
    return (root / MENDING).exists() or any(root.glob(f"{_aside_prefix(file.name)}*"))


def _conclude(file: KeptFile) -> None:
    """The file is whole: the old one may go, and the model be trusted."""
    if file.path.is_file():
        _let_go(file.unit.path, file.name)
        _trust_model(file)


def set_aside(root: Path, name: str) -> Path | None:
    """Rename what stands in the file's place, be it a link in the middle of its path; None when nothing does.

    Raises: StorageError.
    """
    place = root
    *folders, last = name.split("/")
    for folder in folders:
        place = place / folder
        if place.is_symlink() or (place.exists() and not place.is_dir()):
            return _rename(place, root, name)
        if not place.exists():
            return None
    return _rename(place / last, root, name) if os.path.lexists(place / last) else None


def _rename(thing: Path, root: Path, name: str) -> Path:
    return move(thing, root / f"{_aside_prefix(name)}{secrets.token_hex(4)}")


def _aside_prefix(name: str) -> str:
    """One for each file, whose own name may be too long to be in it."""
    return f"{_BROKEN}{hashlib.sha256(name.encode()).hexdigest()[:16]}-"


def _let_go(root: Path, name: str) -> None:
    """Remove what was set aside for the file, now and in attempts that failed.

    A folder in a file's place is nothing that we made: it stays where it was set aside.
    """
    for aside in root.glob(f"{_aside_prefix(name)}*"):
        with contextlib.suppress(OSError):
            aside.unlink()


async def _fetch_again(file: KeptFile, fetched: FetchedFile, origins: Origins, progress: ProgressSink) -> None:
    source, root = parse_source(fetched.source), file.unit.path
    for parent in reversed(file.path.relative_to(root).parents[:-1]):
        ensure_directory(root / parent)
    if isinstance(source, PackageSource):
        await take_member(source, file.path, root, (origins.packages, fetched.digest), progress)
        return
    if isinstance(source, WebSource):
        item = Download(origins.address(source), fetched.digest, fetched.kind)
    elif isinstance(source, HubSource):
        url = origins.hub.address(source, source.revision, source.file)
        item = Download(url, fetched.digest, fetched.kind, token=origins.hub.token)
    else:
        return
    async with HttpClient() as http:
        await download(http, item, file.path, progress)


def _doubt_model(file: KeptFile) -> None:
    marker = file.unit.path / COMPLETE
    if marker.is_file():
        move(marker, file.unit.path / MENDING)


def _trust_model(file: KeptFile) -> None:
    """The model is here again, once none of its files is missing."""
    root = file.unit.path
    with contextlib.suppress(FileNotFoundError):
        text = (root / MENDING).read_text(encoding="utf-8", errors="replace")
        if all((root / one.name).is_file() for one in parse_complete(text, file.unit.model, root.name)):
            move(root / MENDING, root / COMPLETE)
