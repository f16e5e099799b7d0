"""Layers that are kept between runs, and given up when nobody uses them any more.

A layer is as large as what was installed in it, and a new build of the package makes a new one. Whoever uses a layer
holds a shared lock on it while the process lives, so that the next one to make a layer of the same kind can tell
which of the older ones are in use.
"""

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.hosts.harness.tree import cache_directory, cache_lock

_held: dict[Path, int] = {}
"""Layers that this process uses, with the descriptor that holds the lock; given back when the process ends."""


def cached_layer(kind: str, key: str, make: Callable[[Path], None]) -> Path:
    """The layer `kind-key`; `make` is called with its path when it is not there yet."""
    layer = cache_directory() / f"{kind}-{key}"
    with cache_lock(kind):
        if not layer.is_dir():
            for other in cache_directory().glob(f"{kind}-*"):
                if other.is_dir() and _is_unused(other):
                    shutil.rmtree(other)
                    _lock_file(other).unlink(missing_ok=True)
            make(layer)
        _hold(layer)
    return layer


def _lock_file(layer: Path) -> Path:
    return layer.with_name(f"{layer.name}.inuse")


def _hold(layer: Path) -> None:
    if layer not in _held:
        _held[layer] = os.open(_lock_file(layer), os.O_CREAT | os.O_RDONLY | os.O_CLOEXEC, 0o644)
        fcntl.flock(_held[layer], fcntl.LOCK_SH)


def _is_unused(layer: Path) -> bool:
    try:
        handle = os.open(_lock_file(layer), os.O_CREAT | os.O_RDONLY | os.O_CLOEXEC, 0o644)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(handle)
