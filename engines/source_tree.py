"""Brings a project's source archive onto this machine, and says what its environment is to be made of."""

from pathlib import Path

from core.errors import DependencyError
from core.files import ensure_directory, write_atomic
from core.http.client import HttpClient
from engines.download import Download
from engines.lock import Asked, narrow, read_requirements, requirement_names
from engines.pypi import ProgressSink
from engines.recipe import SourceTree
from engines.release import fetch_archive, unpack_archive

_LIMIT_BYTES = 1 << 20


class RequirementsMissing(DependencyError):
    """The archive has no file of requirements where the recipe says that it is."""

    code = "engine_requirements_missing"


async def fetch_source(source: SourceTree, archives: Path, progress: ProgressSink) -> Path:
    """The archive in the folder `archives`. Raises: DownloadMismatch, DownloadFailed, NotFoundError, StorageError."""
    ensure_directory(archives, mode=0o700)
    async with HttpClient() as http:
        return await fetch_archive(http, download_of(source), source.archive, archives, progress)


async def unpack_source(source: SourceTree, archive: Path, into: Path, progress: ProgressSink) -> None:
    """Everything in the archive below `into`, without the one folder around it. Raises: UnsafeArchive, StorageError."""
    ensure_directory(into, mode=0o755)
    await unpack_archive(archive, source.archive, into, source.source_bytes, progress)


def download_of(source: SourceTree) -> Download:
    """What to fetch, once its digest is known."""
    return Download(source.url, source.sha256, missing_code="archive_missing")


def ask_for(source: SourceTree, version: str, tree: Path, staging: Path) -> Asked:
    """What the tree's environment is made of; its requirements and the recipe's lie in `staging` then.

    Raises: RequirementsMissing, RequirementsRefused, StorageError.
    """
    name = source.archive.partition(version)[0].rstrip("-") or source.archive
    try:
        with (tree / source.requirements).open(encoding="utf-8") as file:
            text = file.read(_LIMIT_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        raise RequirementsMissing(f"{source.archive} has no {source.requirements} that can be read") from error
    lines = narrow(read_requirements(text, what=f"{source.requirements} of {name} {version}"), source.also)
    path = staging / "asked.txt"
    write_atomic(path, "".join(f"{line}\n" for line in lines))
    names = tuple(requirement_names(lines))
    return Asked(name, version, path, date=source.date, names=names, index=source.index)
