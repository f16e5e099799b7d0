"""How something large comes onto the disk: wholly or not at all.

Work is done in a `.staging-…` folder beside the target, under a lock that the kernel frees when its holder dies,
and appears by one rename. Whoever comes next removes what a killed holder left. Folders have random names: a child
of a killed process (pip) may still write into its own for a moment, which then hurts nobody.
"""

import asyncio
import contextlib
import os
import secrets
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

from core.errors import ConflictError
from core.files import StorageError, ensure_directory, lock_file, storage_error, sync_directory
from core.tasks import Backoff

_PREFIX = ".staging-"
_SPARE_BYTES = 64 << 20
"""Left free on top of what is needed: a full root file system stops more than us."""


@contextlib.asynccontextmanager
async def hold_lock(path: Path, *, timeout_s: float, what: str) -> AsyncIterator[None]:
    """Hold the lock while the block runs, waiting for another holder up to `timeout_s`.

    Raises: ConflictError (`locked`).
    """
    backoff = Backoff(0.05, 1.0)
    with contextlib.ExitStack() as stack:
        try:
            async with asyncio.timeout(timeout_s):
                while not _try_lock(stack, path):  # noqa: ASYNC110 - another process holds it: there is no event
                    await asyncio.sleep(backoff.next_s())
        except TimeoutError:
            raise ConflictError(
                f"{what} is under way in another process since more than {timeout_s:g} s", code="locked"
            ) from None
        yield


def _try_lock(stack: contextlib.ExitStack, path: Path) -> bool:
    try:
        stack.enter_context(lock_file(path))
    except ConflictError:
        return False
    return True


@contextlib.contextmanager
def staging_folder(beside: Path) -> Iterator[Path]:
    """A fresh private folder in `beside`, removed at the end; stale ones are removed first. Call under the lock."""
    remove_stale(beside)
    folder = beside / f"{_PREFIX}{secrets.token_hex(8)}"
    ensure_directory(folder, mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_stale(folder: Path) -> None:
    """Remove what killed holders of the lock left."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if name.startswith(_PREFIX):
                shutil.rmtree(folder / name, ignore_errors=True)


def tidy(folder: Path, lock: Path) -> None:
    """Remove what killed holders left, unless somebody is at work here now. For whoever found the thing in place."""
    with contextlib.suppress(OSError, ConflictError):
        if any(name.startswith(_PREFIX) for name in os.listdir(folder)):
            with lock_file(lock):
                remove_stale(folder)


def publish(staged: Path, final: Path) -> None:
    """Make `staged` (synced by who wrote it) appear as `final`; a broken thing in its place is moved away first.

    Raises: StorageError.
    """
    try:
        if final.is_dir() and staged.is_dir():
            park(final)
        os.rename(staged, final)
        sync_directory(final.parent)
    except OSError as error:
        raise storage_error(final, error) from error


def park(thing: Path) -> Path:
    """Rename `thing` to what `remove_stale` removes, and return its new path. Raises: StorageError."""
    return move(thing, thing.parent / f"{_PREFIX}{secrets.token_hex(8)}")


def move(thing: Path, place: Path) -> Path:
    """Rename `thing`, and keep that over a crash; returns its new path. Raises: StorageError."""
    try:
        os.rename(thing, place)
        sync_directory(thing.parent)
    except OSError as error:
        raise storage_error(thing, error) from error
    return place


def check_space(folder: Path, need_bytes: int, what: str) -> None:
    """Raises: StorageError (`disk_full`) when `folder`'s file system has not got `need_bytes` and some to spare."""
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        free = shutil.disk_usage(place).free
    except OSError as error:
        raise storage_error(place, error) from error
    if free < need_bytes + _SPARE_BYTES:
        raise StorageError(
            f"{what} needs {_mib(need_bytes + _SPARE_BYTES)} MiB, and {place} has {_mib(free)} MiB free",
            hint=f"free space there, or move {folder} to another disk (paths.engines, paths.weights)",
            code="disk_full",
        )


async def run_to_end(work: Callable[[threading.Event], None]) -> None:
    """Run blocking `work` in a thread; when cancelled, ask it to stop and wait until it has.

    A thread that went on alone would write into a folder that somebody else already removes.
    """
    stop = threading.Event()
    future = asyncio.get_running_loop().run_in_executor(None, work, stop)
    try:
        await asyncio.shield(future)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([future])
        future.exception()  # looked at, so that asyncio does not report it as lost
        raise


def _mib(size_bytes: int) -> int:
    return size_bytes >> 20
