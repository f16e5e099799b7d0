"""A service unit as a value: what we say to a service manager, before it is text.

`units/render.py` turns it into a unit file and is the only place that quotes or escapes. Nothing here reads or
writes. The vocabulary is systemd's, spelt in snake_case; only the directives that we generate exist.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from core.runtime import Authority

_LONGEST_FAILURE = 300


class ServiceType(StrEnum):
    """When the service manager calls the unit started. `exec`: when execve worked. `notify`: when it says so."""

    EXEC = "exec"
    NOTIFY = "notify"


class RestartWhen(StrEnum):
    """Which ends of the main process bring it back. An ordered stop never does."""

    NO = "no"
    ON_FAILURE = "on-failure"
    ALWAYS = "always"


class KillMode(StrEnum):
    """Whom a stop asks to end (SIGTERM). Either way all of the unit is gone at its end."""

    CONTROL_GROUP = "control-group"
    """All of it."""
    MIXED = "mixed"
    """Its main process alone, which ends the others; what is left when that one has ended is killed."""


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """How often a unit that ended comes back, before it is `failed`."""

    when: RestartWhen = RestartWhen.ALWAYS
    delay_s: float = 1.0
    limit_burst: int = 5
    limit_interval_s: float = 300.0


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a runtime was given up, so that a daemon that restarts neither forgets it nor tries again by itself."""

    code: str
    message: str

    @classmethod
    def of(cls, code: str, message: str) -> "Failure":
        """As a unit file can carry it: one line, not too long."""
        shown = "".join(letter if letter.isprintable() else " " for letter in message)
        return cls(code, shown[:_LONGEST_FAILURE])


@dataclass(frozen=True, slots=True)
class UnitRecord:
    """The `[X-Llmgw]` section: what a daemon that finds this unit must know to adopt it.

    systemd skips sections named `X-…`. `hold` says that an operator stopped this runtime and that nothing but
    an operator may start it again; `leaving`, that it was being stopped because nobody wanted it any more.
    """

    runtime_id: str
    kind: str = "engine"
    engine: str = ""
    build: str = ""
    spec_hash: str = ""
    ports: tuple[int, ...] = ()
    authority: Authority = field(default_factory=lambda: Authority(owner=""))
    devices: tuple[str, ...] = ()
    since: str = ""
    hold: bool = False
    leaving: bool = False
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Sandbox:
    """What an engine's process can reach of the machine. Paths that do not exist are fine."""

    read_write_paths: tuple[str, ...] = ()
    read_only_paths: tuple[str, ...] = ()
    device_allow: tuple[str, ...] = ()
    """Device nodes or classes: `/dev/nvidia0`, `char-nvidia-uvm`. Empty: none but the pseudo devices."""
    allow_jit: bool = True
    """Whether code may be made at run time (`MemoryDenyWriteExecute=no`): torch and CUDA need it."""


@dataclass(frozen=True, slots=True)
class ServiceUnit:
    """One generated `.service`. Times in seconds, sizes in bytes."""

    name: str
    description: str
    exec_start: tuple[str, ...]
    record: UnitRecord
    type: ServiceType = ServiceType.EXEC
    environment: tuple[tuple[str, str], ...] = ()
    environment_files: tuple[str, ...] = ()
    credentials: tuple[tuple[str, str], ...] = ()
    """(id, source path): the unit reads it at `$CREDENTIALS_DIRECTORY/id`. In argv write `%d/id` via CREDENTIALS."""
    user: str = ""
    group: str = ""
    supplementary_groups: tuple[str, ...] = ()
    slice: str = ""
    working_directory: str = ""
    restart: RestartPolicy = field(default_factory=RestartPolicy)
    timeout_start_s: float = 90.0
    timeout_stop_s: float = 20.0
    kill_mode: KillMode = KillMode.CONTROL_GROUP
    watchdog_s: float = 0.0
    memory_max_bytes: int = 0
    """0: no limit of its own."""
    limit_nofile: int = 65536
    lock_memory: bool = True
    after: tuple[str, ...] = ()
    wants: tuple[str, ...] = ()
    binds_to: tuple[str, ...] = ()
    part_of: tuple[str, ...] = ()
    upholds: tuple[str, ...] = ()
    sandbox: Sandbox | None = field(default_factory=Sandbox)
    """None: no sandbox directives at all (the embedded supervisor ignores them in any case, and says so once)."""


CREDENTIALS = "\x00credentials\x00"
"""Placeholder in `exec_start` words for the unit's credentials directory; rendered as `%d`.

NUL cannot occur in an argument, so no value from a config can forge it.
"""
