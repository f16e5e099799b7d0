"""Takes files out of a compressed tar archive (of a release) that may be hostile.

What `engines.unpack` says of zip archives holds here too. Releases have one folder around everything, which is left
out, and names of libraries that are links: one that leads to a file of the same archive becomes another name of that
file, any other is refused. Blocking; `engines.staging.run_to_end` gives it a thread.
"""

import gzip
import os
import posixpath
import tarfile
import threading
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from core.files import storage_error, sync_directory
from engines.unpack import MAX_MEMBERS, UnsafeArchive, judge_name, judge_tree, make_parents, write_member

_AT_ONCE_BYTES = 4 << 20
"""More than anything that is read of an archive in one go; a head that claims to be longer is no head."""
_SPARE_BYTES = 64 << 20
"""Beyond its files: heads, and what fills its blocks."""
_BROKEN = (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error)


@dataclass(frozen=True, slots=True)
class TarMember:
    """One file to take out."""

    name: str
    """In the archive."""
    path: str
    """Where it goes, below the target folder."""
    mode: int
    same_as: str = ""
    """The path of the file that it is another name of."""


def plan_tar(infos: Iterable[tarfile.TarInfo], *, max_bytes: int) -> list[TarMember]:
    """All files, judged, without the one folder around them. Pure. Raises: UnsafeArchive."""
    files: dict[str, int] = {}
    links: dict[str, str] = {}
    names: set[str] = set()
    total = 0
    for info in infos:
        if len(names) >= MAX_MEMBERS:
            raise UnsafeArchive(f"the archive has more than {MAX_MEMBERS} members")
        name, shown = info.name, repr(info.name[:120])
        if name == "." and info.isdir():
            continue
        name = name.removeprefix("./")
        judge_name(name)
        if name in names:
            raise UnsafeArchive(f"the archive holds {shown} twice")
        names.add(name)
        if info.issym() or info.islnk():
            links[name] = _destination(name, info)
        elif info.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not info.issparse():
            files[name] = 0o755 if info.mode & 0o111 else 0o644
            total += info.size
        elif not info.isdir():
            raise UnsafeArchive(f"the archive has a device or the like in it: {shown}")
        if total > max_bytes:
            raise UnsafeArchive(f"the archive unpacks to more than the {max_bytes} bytes that were expected")
    around = _folder_around([*files, *links])
    members = [TarMember(name, name.removeprefix(around), mode) for name, mode in files.items()]
    for name in links:
        end = _follow(name, links, files)
        members.append(TarMember(name, name.removeprefix(around), files[end], end.removeprefix(around)))
    judge_tree(member.path for member in members)
    return members


def unpack_tar(path: Path, into: Path, stop: threading.Event, *, max_bytes: int) -> None:
    """Write all files of the archive below `into` (which exists and is ours), each synced to disk.

    It is read twice: everything is judged before the first byte is written. Raises: UnsafeArchive, StorageError
    (`disk_full`), `engines.unpack.Stopped`.
    """
    with _opened(path, max_bytes) as archive:
        planned = {member.name: member for member in plan_tar(archive, max_bytes=max_bytes)}
    folders = {into}
    with _opened(path, max_bytes) as archive:
        for info in archive:
            member = planned.get(info.name.removeprefix("./"))
            if member is None or member.same_as:
                continue
            source = archive.extractfile(info)
            if source is not None:
                with source, _told(into / member.path):
                    make_parents(into, member.path, folders)
                    write_member(source, into / member.path, member.mode, stop)
    for member in planned.values():
        if member.same_as:
            with _told(into / member.path):
                make_parents(into, member.path, folders)
                os.link(into / member.same_as, into / member.path)
    for folder in folders:
        sync_directory(folder)


def _destination(name: str, info: tarfile.TarInfo) -> str:
    """The name in the archive that a link leads to."""
    linked = info.linkname
    if info.issym():
        linked = posixpath.normpath(posixpath.join(posixpath.dirname(name), linked))
    linked = linked.removeprefix("./")
    if info.linkname.startswith("/") or linked.startswith("../") or linked in ("", ".", ".."):
        raise UnsafeArchive(f"the archive has a link that leads out of it: {name[:120]!r}")
    judge_name(linked)
    return linked


def _follow(name: str, links: dict[str, str], files: dict[str, int]) -> str:
    at, seen = name, {name}
    while at in links:
        at = links[at]
        if at in seen:
            raise UnsafeArchive(f"the archive has links that lead in a circle: {name[:120]!r}")
        seen.add(at)
    if at not in files:
        raise UnsafeArchive(f"the archive has a link to what is no file of it: {name[:120]!r}")
    return at


def _folder_around(names: list[str]) -> str:
    """`llama-b1/`, where everything lies in it; else nothing."""
    firsts = {name.partition("/")[0] for name in names}
    only = firsts.pop() if len(firsts) == 1 else ""
    return f"{only}/" if only and all(name.startswith(f"{only}/") for name in names) else ""


@contextmanager
def _opened(path: Path, max_bytes: int) -> Iterator[tarfile.TarFile]:
    """Raises: UnsafeArchive, StorageError."""
    try:
        with gzip.open(path) as packed:
            measured = _Measured(packed, max_bytes + _SPARE_BYTES)
            with tarfile.open(fileobj=cast(IO[bytes], measured), mode="r:") as archive:
                yield archive
            measured.drain()
    except _BROKEN as error:
        raise UnsafeArchive(f"{path.name} is no archive that can be read: {error}") from error
    except OSError as error:
        raise storage_error(path, error) from error


@contextmanager
def _told(target: Path) -> Iterator[None]:
    """Errors of the file that is written, with its path."""
    try:
        yield
    except FileExistsError as error:
        raise UnsafeArchive(f"two archives of one build hold {target.name[:120]!r}") from error
    except gzip.BadGzipFile:
        raise
    except OSError as error:
        raise storage_error(target, error) from error


class _Measured:
    """What tarfile reads from. A few bytes can unpack to any number, of which tarfile would believe every one."""

    def __init__(self, packed: gzip.GzipFile, limit: int) -> None:
        self._packed = packed
        self._limit = limit

    def read(self, size: int) -> bytes:
        self._require(self._packed.tell() + size, size)
        return self._packed.read(size)

    def seek(self, position: int) -> int:
        self._require(position, 0)
        return self._packed.seek(position)

    def tell(self) -> int:
        return self._packed.tell()

    def drain(self) -> None:
        """To the end, where the checksum stands: tarfile stops before it."""
        while self.read(_AT_ONCE_BYTES):
            pass

    def _require(self, position: int, at_once: int) -> None:
        if at_once > _AT_ONCE_BYTES or position > self._limit:
            raise UnsafeArchive("the archive unpacks to more than was expected")
