"""Weights from the web and from Hugging Face: one fetch per place however many ask, and only whole files appear."""

from functools import partial
from pathlib import Path

from core.api import Progress
from core.files import ensure_directory, write_atomic
from core.http.client import HttpClient
from engines.download import Download, download
from engines.hub import Hub, Snapshot, read_snapshot
from engines.origins import Origins
from engines.pypi import ProgressSink
from engines.records import COMPLETE, FetchedFile, record_file
from engines.sources import HubSource, WebSource
from engines.staging import check_space, hold_lock

_LOCK_TIMEOUT_S = 24 * 3600.0


async def fetch_file(
    source: WebSource, path: Path, weights_dir: Path, origins: Origins, progress: ProgressSink
) -> None:
    """Make sure that `path` is here."""
    if path.exists():
        return
    for folder in (weights_dir, weights_dir / "https", path.parent):
        ensure_directory(folder)
    async with hold_lock(path.parent / ".lock", timeout_s=_LOCK_TIMEOUT_S, what=f"a fetch of {path.name}"):
        if not path.exists():
            async with HttpClient() as http:
                fetched = FetchedFile(path.name, source.sha256, source=f"{source.url}#sha256={source.sha256}")
                remember = partial(record_file, path.parent, fetched)
                item = Download(origins.address(source), source.sha256)
                await download(http, item, path, progress, before_publish=remember)


def find_model(source: HubSource, weights_dir: Path) -> Path | None:
    """Where the model (or its one file) lies; None when it is not here wholly."""
    folder = weights_dir / "hf" / source.folder
    try:
        commit = (folder / "refs" / source.revision).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return None
    if len(commit) != 40 or not commit.isalnum():
        return None
    snapshot = folder / commit
    if source.file:
        path = snapshot / source.file
        return path if path.is_file() else None
    return snapshot if (snapshot / COMPLETE).is_file() else None


async def fetch_model(source: HubSource, weights_dir: Path, hub: Hub, progress: ProgressSink) -> Path:
    """Make sure that the model (or its one file) is here, and return its path.

    The revision is asked for once: afterwards the commit that it stood for is meant.
    """
    found = find_model(source, weights_dir)
    if found is None:
        folder = weights_dir / "hf" / source.folder
        for each in (weights_dir, weights_dir / "hf", folder, folder / "refs"):
            ensure_directory(each)
        async with hold_lock(folder / ".lock", timeout_s=_LOCK_TIMEOUT_S, what=f"a fetch of {source}"):
            found = find_model(source, weights_dir) or await _fetch_snapshot(source, folder, hub, progress)
    progress(Progress(step="ready", detail=str(found)))
    return found


async def _fetch_snapshot(source: HubSource, folder: Path, hub: Hub, progress: ProgressSink) -> Path:
    ref = folder / "refs" / source.revision
    pinned = ref.read_text(encoding="utf-8").strip() if ref.is_file() else source.revision
    async with HttpClient() as http:
        asked = HubSource(source.org, source.repo, pinned, source.file)
        snapshot = await read_snapshot(http, hub, asked)
        place = folder / snapshot.commit
        ensure_directory(place)
        missing = _missing(snapshot, place)
        check_space(folder, sum(file.size_bytes for file in missing.files), str(source))
        write_atomic(ref, f"{snapshot.commit}\n")
        for file in missing.files:
            target = place / file.name
            for parent in reversed(target.relative_to(place).parents[:-1]):
                ensure_directory(place / parent)
            url = hub.address(source, snapshot.commit, file.name)
            item = Download(url, file.digest, file.kind, file.size_bytes, hub.token)
            fetched = FetchedFile(file.name, file.digest, file.kind, f"hf:{source}@{snapshot.commit}:{file.name}")
            remember = partial(record_file, place, fetched)
            await download(http, item, target, progress, before_publish=remember)
    if not source.file:
        write_atomic(place / COMPLETE, "".join(f"{file.digest}  {file.name}\n" for file in snapshot.files))
    return place / source.file if source.file else place


def _missing(snapshot: Snapshot, place: Path) -> Snapshot:
    """What is not here yet: an interrupted fetch left the files that it finished."""
    files = tuple(file for file in snapshot.files if not (place / file.name).is_file())
    return Snapshot(snapshot.commit, files)
