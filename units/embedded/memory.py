"""What the next supervisor must know of a unit when this one is killed: two small files per unit.

`NAME.json` is written at every change of state, before anything is done about it. `NAME.birth` is written by the
child itself before exec, so that no process can run unrecorded, and taken away when nothing of that life is left:
while it exists, a life is under way. Both name the boot they belong to and mean nothing in another. They are
renamed into place but not fsynced: they outlive the supervisor, not the kernel.
"""

import os
from pathlib import Path
from typing import Annotated

import msgspec

from core.files import storage_error
from units.backend import ActiveState
from units.embedded.restart import Result

STATE_SUFFIX = ".json"
BIRTH_SUFFIX = ".birth"


class UnitMemory(msgspec.Struct, frozen=True, kw_only=True):
    """A unit's state as it was last changed."""

    boot_id: str
    active_state: ActiveState
    sub_state: str
    result: Result
    is_wanted: bool
    """Whether it was ordered to run; otherwise to stop, or nothing."""
    starts_s: list[float] = []
    """Monotonic stamps of recent starts, for the start limit."""
    restarts: int = 0
    exec_main_status: int = 0
    status_text: str = ""
    invocation_id: str = ""


class Birth(msgspec.Struct, frozen=True, kw_only=True):
    """One main process, as it recorded itself."""

    boot_id: str
    pid: Annotated[int, msgspec.Meta(ge=2, le=1 << 22)]
    """At most the kernel's PID_MAX_LIMIT; 1 would be init."""
    start_ticks: Annotated[int, msgspec.Meta(ge=0)]
    invocation_id: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
    """Becomes part of a path."""
    mark: Annotated[int, msgspec.Meta(ge=0)] = 0


def write_record(path: Path, record: UnitMemory | Birth) -> None:
    """Replace `path`. Raises: StorageError."""
    temporary = path.with_name(path.name + ".new")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, msgspec.json.encode(record))
        finally:
            os.close(descriptor)
        os.rename(temporary, path)
    except OSError as error:
        raise storage_error(path, error) from error


def read_memory(path: Path, boot_id: str) -> UnitMemory | None:
    """The state of this boot; None when there is none, or it is damaged."""
    try:
        memory = msgspec.json.decode(path.read_bytes(), type=UnitMemory)
    except (OSError, msgspec.DecodeError):
        return None
    return memory if memory.boot_id == boot_id else None


def read_birth(path: Path, boot_id: str) -> Birth | None:
    """The life that was under way in this boot; None when there is none, or it is damaged."""
    try:
        birth = msgspec.json.decode(path.read_bytes(), type=Birth)
    except (OSError, msgspec.DecodeError):
        return None
    return birth if birth.boot_id == boot_id else None
