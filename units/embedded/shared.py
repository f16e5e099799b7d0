"""The folder in which services find their notify sockets and secrets.

For root it is in /run: a service with a user of its own could not reach into a state below, say, /root, and secrets
do not belong on a disk. It names the state that it belongs to and is locked while its supervisor runs, so that
folders whose supervisor was killed and whose state is gone are found and taken away by the next one.
"""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from core.files import ensure_directory
from units.embedded.site import short_name

RUN = Path("/run")
_PREFIX = "llmgw-"
_OWNER = "state"


@contextlib.contextmanager
def open_shared(state: Path) -> Iterator[Path]:
    """Make the folder; afterwards it is taken away, unless services that go on running still have something in it."""
    if os.geteuid() != 0 or not os.access(RUN, os.W_OK):
        yield state
        return
    folder = RUN / f"{_PREFIX}{short_name(state)}"
    ensure_directory(folder, mode=0o711)
    owner = folder / _OWNER
    owner.unlink(missing_ok=True)
    owner.symlink_to(state)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        remove_abandoned(RUN)
        yield folder
    finally:
        os.close(descriptor)
        if os.listdir(folder) == [_OWNER]:
            shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned(parent: Path) -> None:
    """Take away folders whose state is gone and whose supervisor does not run."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # no such link, locked, or gone meanwhile: not ours to take away
            if not os.path.lexists(os.readlink(folder / _OWNER)):
                _remove_unlocked(folder)


def _remove_unlocked(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder)
    finally:
        os.close(descriptor)
