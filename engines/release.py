"""Brings the archives of a project's release onto this machine, as `engines.digests` completed the recipe."""

import threading
from functools import partial
from pathlib import Path

from core.api import Progress
from core.errors import DependencyError
from core.files import ensure_directory
from core.http.client import HttpClient
from engines.download import Download, download
from engines.pypi import ProgressSink
from engines.recipe import Release
from engines.staging import run_to_end
from engines.untar import unpack_tar

ARCHIVES = ".archives"
"""Where they are kept, beside the builds, until the build is made: what has come of one outlives a killed process."""


class ExecutableMissing(DependencyError):
    """The archives hold no program of the name that the recipe gives."""

    code = "engine_executable_missing"


async def unpack_release(release: Release, platform: str, archives: Path, tree: Path, progress: ProgressSink) -> None:
    """Fetch the archives for the platform into the folder `archives`, and unpack them into `tree`.

    Raises: DownloadMismatch, DownloadFailed, NotFoundError, UnsafeArchive, StorageError.
    """
    ensure_directory(archives, mode=0o700)
    async with HttpClient() as http:
        for name in release.files[platform]:
            archive = await fetch_archive(http, archive_of(release, name), name, archives, progress)
            await unpack_archive(archive, name, tree, release.unpacked_bytes, progress)


async def fetch_archive(http: HttpClient, item: Download, name: str, archives: Path, progress: ProgressSink) -> Path:
    """The archive in the folder `archives`, brought there unless an earlier try did. Raises: as `download`."""
    archive = archives / f"{item.digest[:16]}-{name}"
    if not archive.exists():
        await download(http, item, archive, progress)
    return archive


async def unpack_archive(archive: Path, name: str, into: Path, max_bytes: int, progress: ProgressSink) -> None:
    """Everything in the archive below `into`, without the one folder around it. Raises: UnsafeArchive, StorageError."""
    progress(Progress(step="unpack", detail=name, total_bytes=max_bytes))
    await run_to_end(partial(_unpack, archive, into, max_bytes))


def archive_of(release: Release, name: str) -> Download:
    """What to fetch for one of its archives, whose digest is known."""
    return Download(f"{release.url}{name}", release.sha256[name], missing_code="archive_missing")


def find_executable(tree: Path, wanted: str) -> str:
    """Where the program is, below the tree: as the recipe says, or the one file of its name.

    Raises: ExecutableMissing.
    """
    if (tree / wanted).is_file():
        return wanted
    name = wanted.rpartition("/")[2]
    found = sorted(path.relative_to(tree).as_posix() for path in tree.rglob(name) if path.is_file())
    if len(found) != 1:
        raise ExecutableMissing(f"the archives hold {len(found) or 'no'} files {name}, where one was expected")
    return found[0]


def _unpack(archive: Path, tree: Path, max_bytes: int, stop: threading.Event) -> None:
    unpack_tar(archive, tree, stop, max_bytes=max_bytes)
