"""Takes files out of a zip archive (a wheel) that may be hostile.

Names are judged before the first byte is written: nothing absolute, nothing with `..`, no links, devices, encrypted
or doubled members, no absurd sizes. Files are made anew in a folder that only we write to, so no link can lead out.
Identical files (wheels have no symlinks, so `libx.so`, `libx.so.0`, `libx.so.0.17.0` are three copies) are hard
linked: llama.cpp shrinks from 194 to 75 MB. Blocking; `engines.staging.run_to_end` gives it a thread.
"""

import hashlib
import os
import stat
import threading
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from core.errors import DependencyError
from core.files import storage_error, sync_directory

_CHUNK_BYTES = 1 << 20
MAX_MEMBERS = 20_000
_MAX_NAME = 255


class UnsafeArchive(DependencyError):
    """An archive has something in it that we do not unpack, or is broken."""

    code = "archive_unsafe"


class Stopped(Exception):
    """Somebody set the stop event."""


@dataclass(frozen=True, slots=True)
class Member:
    """One file to take out."""

    path: str
    """Where it goes, below the target folder."""
    info: zipfile.ZipInfo
    mode: int


def plan_members(
    infos: Sequence[zipfile.ZipInfo], *, prefix: str = "", keep: Sequence[str] = (), max_bytes: int
) -> list[Member]:
    """The files below `prefix` (and below one of `keep` there), judged. Pure.

    Every member is judged, also those that are left in the archive: a wheel with one hostile name is not trusted
    with the others. `max_bytes` bounds the sum of what is taken. Raises: UnsafeArchive.
    """
    if len(infos) > MAX_MEMBERS:
        raise UnsafeArchive(f"the archive has {len(infos)} members; more than {MAX_MEMBERS} are not unpacked")
    names: set[str] = set()
    members: list[Member] = []
    for info in infos:
        _judge(info)
        if info.filename in names:
            raise UnsafeArchive(f"the archive holds {info.filename[:120]!r} twice")
        names.add(info.filename)
        path = info.filename.removeprefix(prefix)
        taken = info.filename.startswith(prefix) and (not keep or path.startswith(tuple(keep)))
        if taken and not info.is_dir():
            mode = 0o755 if (info.external_attr >> 16) & 0o111 else 0o644
            members.append(Member(path, info, mode))
    judge_tree(member.path for member in members)
    total = sum(member.info.file_size for member in members)
    if total > max_bytes:
        raise UnsafeArchive(f"the archive unpacks to {total} bytes; at most {max_bytes} were expected")
    return members


def unpack(archive: zipfile.ZipFile, members: Sequence[Member], into: Path, stop: threading.Event) -> None:
    """Write the members below `into` (which exists and is ours), each synced to disk.

    Raises: UnsafeArchive for a broken archive, StorageError (`disk_full`), Stopped.
    """
    seen: dict[bytes, Path] = {}
    folders = {into}
    for member in members:
        target = into / member.path
        try:
            make_parents(into, member.path, folders)
            with archive.open(member.info) as source:
                digest = write_member(source, target, member.mode, stop)
            twin = seen.setdefault(digest, target)
            if twin != target and twin.stat().st_mode == target.stat().st_mode:
                target.unlink()
                os.link(twin, target)
        except OSError as error:
            raise storage_error(target, error) from error
        except (zipfile.BadZipFile, EOFError, RuntimeError, NotImplementedError) as error:
            raise UnsafeArchive(f"the archive is broken at {member.info.filename[:120]!r}: {error}") from error
    for folder in folders:
        sync_directory(folder)


def open_archive(path: Path) -> zipfile.ZipFile:
    """Raises: UnsafeArchive when it is no zip archive, StorageError when it cannot be read."""
    try:
        return zipfile.ZipFile(path)
    except OSError as error:
        raise storage_error(path, error) from error
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise UnsafeArchive(f"{path.name} is no archive that can be read: {error}") from error


def judge_name(name: str) -> None:
    """Whether a member of this name stays below its folder. Raises: UnsafeArchive."""
    shown = repr(name[:120])
    if any(ord(c) < 32 or ord(c) == 127 for c in name) or "\\" in name:
        raise UnsafeArchive(f"the archive has a member with a malformed name: {shown}")
    parts = name.removesuffix("/").split("/")
    if not name or any(part in ("", ".", "..") or len(os.fsencode(part)) > _MAX_NAME for part in parts):
        raise UnsafeArchive(f"the archive has a member outside its folder: {shown}")


def judge_tree(paths: Iterable[str]) -> None:
    """Whether these files can lie beside each other. Raises: UnsafeArchive."""
    files = set(paths)
    for path in files:
        for parent in PurePosixPath(path).parents:
            if str(parent) in files:
                raise UnsafeArchive(f"the archive has {str(parent)[:120]!r} as a file and as a folder")


def make_parents(into: Path, path: str, folders: set[Path]) -> None:
    """Make the folders between `into` and the file, outermost first; `folders` holds those that are there."""
    folder = into
    for part in path.split("/")[:-1]:
        folder /= part
        if folder not in folders:
            folder.mkdir(mode=0o755, exist_ok=True)
            folder.chmod(0o755)
            folders.add(folder)


def write_member(source: IO[bytes], target: Path, mode: int, stop: threading.Event) -> bytes:
    """Write the file anew and sync it; returns its SHA-256. Raises: Stopped, OSError, and what reading raises."""
    digest = hashlib.sha256()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(target, flags, 0o600), "wb") as out:
        while chunk := source.read(_CHUNK_BYTES):
            if stop.is_set():
                raise Stopped
            digest.update(chunk)
            out.write(chunk)
        out.flush()
        os.fchmod(out.fileno(), mode)
        os.fsync(out.fileno())
    return digest.digest()


def _judge(info: zipfile.ZipInfo) -> None:
    name, shown = info.filename, repr(info.filename[:120])
    # ZipInfo cuts a name at NUL; the original shows what the archive really said.
    if name != info.orig_filename:
        raise UnsafeArchive(f"the archive has a member with a malformed name: {shown}")
    judge_name(name)
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR) or (kind == stat.S_IFDIR) > info.is_dir():
        raise UnsafeArchive(f"the archive has a link or a device in it: {shown}")
    if info.flag_bits & 0x1:
        raise UnsafeArchive(f"the archive has an encrypted member: {shown}")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise UnsafeArchive(f"the archive packs {shown} in a way that we do not unpack")
