"""Files that must be either the old or the new content, whatever happens in between."""

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from core.errors import ConflictError, DependencyError


class StorageError(DependencyError):
    """The file system refused: full, read-only, no permission."""

    code = "storage_failed"


def write_atomic(path: Path, data: bytes | str, *, mode: int = 0o644, uid: int = -1, gid: int = -1) -> None:
    """Replace `path` by `data`: temporary file beside it, fsync, rename, fsync of the folder.

    The mode and owner are set before the rename, so no moment exists in which the content is readable by others.
    Raises: StorageError naming the path.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            _write_all(descriptor, data.encode() if isinstance(data, str) else data)
            os.fchmod(descriptor, mode)
            if uid >= 0 or gid >= 0:
                os.fchown(descriptor, uid, gid)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, path)
        sync_directory(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise storage_error(path, error) from error


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def sync_directory(path: Path) -> None:
    """Make renames inside `path` survive a power loss."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def ensure_directory(path: Path, *, mode: int = 0o755, uid: int = -1, gid: int = -1) -> None:
    """Make `path` and its parents; give `path` itself this mode and owner. Raises: StorageError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        if path.stat().st_mode & 0o7777 != mode:
            path.chmod(mode)
        if uid >= 0 or gid >= 0:
            os.chown(path, uid, gid)
    except OSError as error:
        raise storage_error(path, error) from error


def set_mark(path: Path, *, present: bool) -> None:
    """Make an empty file exist or not exist: a yes or no that outlives us. Raises: StorageError."""
    if present:
        ensure_directory(path.parent)
        write_atomic(path, b"", mode=0o600)
        return
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise storage_error(path, error) from error


@contextlib.contextmanager
def lock_file(path: Path) -> Iterator[None]:
    """Hold an exclusive lock while the block runs; the kernel frees it when the process dies.

    Raises: ConflictError (`locked`) at once when somebody else holds it.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise storage_error(path, error) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConflictError(f"{path} is locked by another process", code="locked") from None
        yield
    finally:
        os.close(descriptor)


def storage_error(path: Path, error: OSError) -> StorageError:
    """Translate an OSError of the file system into our tree, with a hint that fits."""
    hints = {
        errno.EACCES: "this user may not: use sudo, or another folder",
        errno.EPERM: "this user may not: use sudo, or another folder",
        errno.ENOSPC: "free space on that file system",
        errno.EROFS: "the file system is read-only; paths.engines and paths.weights may name another one",
        errno.EDQUOT: "the disk quota is used up",
    }
    return StorageError(
        f"{path}: {error.strerror or error}",
        hint=hints.get(error.errno or 0, ""),
        code="disk_full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else None,
    )
