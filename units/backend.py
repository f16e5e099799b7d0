"""The one seam between the daemon and a service manager.

Two implementations: `units.systemd` (D-Bus) and `units.embedded` (a supervisor process of our own, over its
socket). One contract suite, `tests/contract/`, runs against both. Words for states are systemd's in either.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from core.errors import DependencyError, UnavailableError


class ActiveState(StrEnum):
    """systemd's ActiveState."""

    ACTIVE = "active"
    ACTIVATING = "activating"
    DEACTIVATING = "deactivating"
    FAILED = "failed"
    INACTIVE = "inactive"
    RELOADING = "reloading"


@dataclass(frozen=True, slots=True)
class UnitStatus:
    """What the service manager says of a unit right now."""

    name: str
    loaded: bool
    """False: the manager knows no such unit file (systemd's LoadState is not `loaded`)."""
    active_state: ActiveState
    sub_state: str
    """systemd's SubState: `running`, `dead`, `failed`, `auto-restart`, `start`, `stop-sigterm`, …"""
    result: str = "success"
    """systemd's Result: `success`, `exit-code`, `signal`, `oom-kill`, `timeout`, `watchdog`, `start-limit-hit`, …"""
    main_pid: int = 0
    exec_main_status: int = 0
    """Exit status, or the number of the signal that ended it."""
    restarts: int = 0
    status_text: str = ""
    invocation_id: str = ""
    """Changes with every start: two statuses with one id are one life of the process."""


@dataclass(frozen=True, slots=True)
class UnitFileChange:
    """One unit file to write (`text`) or to remove (`text is None`)."""

    name: str
    text: str | None


class UnitJobFailed(DependencyError):
    """The service manager took our job and it did not end in `done`."""

    code = "unit_job_failed"


class BackendLost(UnavailableError):
    """The service manager cannot be reached now; what it runs goes on running."""

    code = "service_manager_unreachable"


class UnitBackend(Protocol):
    """A service manager. Every call is bounded by the backend's own deadline and raises `BackendLost` past it."""

    name: str

    async def run(self) -> None:
        """Keep the connection alive (reconnect with backoff) until cancelled. Owned by the daemon's task group."""
        ...

    async def wait_ready(self) -> None:
        """Return once connected."""
        ...

    async def read_files(self) -> dict[str, str]:
        """Every generated unit file of ours (`llmgw-engine-*`, `llmgw-gate-*`): name -> text."""
        ...

    async def apply_files(self, changes: Sequence[UnitFileChange]) -> None:
        """Write and remove files atomically, then make the manager read them: one reload for the whole batch."""
        ...

    async def apply_drop_in(self, unit: str, text: str | None, *, users: Sequence[str]) -> bool:
        """Write (or with None remove) our drop-in of a static unit of the package; whether that changed anything.

        Then `users` are stopped, the unit is restarted, and those that ran are started again. A manager without
        static units has nothing to change.
        """
        ...

    async def read_status(self, name: str) -> UnitStatus:
        """The unit's status; a unit nobody knows is `loaded=False`, inactive."""
        ...

    async def start(self, name: str) -> None:
        """Queue a start and wait for *our* job. Raises `UnitJobFailed`. Started already: returns at once.

        For `Type=exec` this returns once execve worked, not when the engine serves.
        """
        ...

    async def stop(self, name: str) -> None:
        """Stop and wait until nothing of the unit is left (bounded by the unit's TimeoutStopSec). Idempotent."""
        ...

    async def restart(self, name: str) -> None:
        """Stop, then start."""
        ...

    async def kill(self, name: str, signal: int) -> None:
        """Send `signal` to all processes of the unit."""
        ...

    async def reset_failed(self, name: str) -> None:
        """Forget a failure and the start limit's count."""
        ...

    def changes(self) -> AsyncIterator[UnitStatus]:
        """Status changes of our units, as they happen; at least once per change, latest value.

        After a reconnect, the current status of every unit of ours is sent again.
        """
        ...

    async def read_log(self, name: str, lines: int) -> list[str]:
        """The last `lines` lines that the unit's *current or last* life and earlier ones wrote, oldest first."""
        ...

    def follow_log(self, name: str, lines: int) -> AsyncIterator[str]:
        """The last `lines` lines, then new ones as they come, until the consumer stops."""
        ...

    async def read_pids(self, name: str) -> list[int]:
        """All processes of the unit, in no order; empty when there are none."""
        ...
