"""Which workers live: each holds a lock on a file of its own, and the kernel frees it when the worker dies.

So nobody has to believe a time or a process id. A worker that is stopped in good order gives its file away.
"""

import fcntl
import os
import secrets
from pathlib import Path

from core.files import ensure_directory, storage_error


class Crew:
    """This worker's place among those that share a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.name = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._descriptor: int | None = None

    def join(self) -> None:
        """Be seen to live. Raises: StorageError."""
        if self._descriptor is not None:
            return
        ensure_directory(self._directory, mode=0o700)
        path = self._path(self.name)
        try:
            while self._descriptor is None:
                self._descriptor = _lock_new(path)
        except OSError as error:
            raise storage_error(path, error) from error

    def leave(self) -> None:
        """Be gone."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            self._path(self.name).unlink(missing_ok=True)
            os.close(descriptor)

    def is_dead(self, name: str) -> bool:
        """Whether nobody holds that worker's lock any more; what it left behind is swept away."""
        if name == self.name:
            return False
        path = self._path(name)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        else:
            path.unlink(missing_ok=True)
            return True
        finally:
            os.close(descriptor)

    def sweep(self) -> None:
        """Remove the files of the dead who left no job behind."""
        for path in self._directory.glob("worker-*.lock"):
            self.is_dead(path.name.removeprefix("worker-").removesuffix(".lock"))

    def _path(self, name: str) -> Path:
        return self._directory / f"worker-{name}.lock"


def _lock_new(path: Path) -> int | None:
    """The locked file; None when somebody swept it away between its making and its lock."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.stat().st_ino == os.fstat(descriptor).st_ino:
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None
