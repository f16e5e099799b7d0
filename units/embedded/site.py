"""What all units of one supervisor share: where their files are, and how their processes are found again."""

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path

from core.log import EventLogger
from units.embedded.cgroup import CgroupGroup, ProcessGroup
from units.embedded.mark import MarkGroup
from units.embedded.memory import BIRTH_SUFFIX, STATE_SUFFIX
from units.embedded.procfs import ProcessTable
from units.embedded.quantities import Limit


@dataclass(frozen=True, slots=True)
class Site:
    """One per supervisor."""

    units: Path
    state: Path
    logs: Path
    boot_id: str
    cgroups: Path | None
    """None: processes are found by their mark."""
    shared: Path
    """Where services find their sockets and secrets: a way that every user may walk."""
    nofile: Limit
    """The limit that the supervisor was given, for units that set none."""
    log: EventLogger
    table: ProcessTable = field(default_factory=ProcessTable)

    def make_group(self, name: str, mark: int) -> ProcessGroup:
        """The process group of one life of a unit."""
        return CgroupGroup(self.cgroups / name) if self.cgroups is not None else MarkGroup(mark, self.table)

    def memory(self, name: str) -> Path:
        return self.state / f"{name}{STATE_SUFFIX}"

    def birth(self, name: str) -> Path:
        return self.state / f"{name}{BIRTH_SUFFIX}"

    def unit_log(self, name: str) -> Path:
        return log_path(self.logs, name)

    def credentials(self, name: str) -> Path:
        return self.shared / f"{name}.credentials"

    def notify_socket(self, invocation_id: str) -> Path:
        """Named after the life, not the unit: a socket's path is short, and `Layout` leaves room for 12 characters."""
        return self.shared / f"n{invocation_id[:11]}"


def short_name(state: Path) -> str:
    """Tells the supervisors of one machine apart, in names outside of their state."""
    return hashlib.sha256(os.fsencode(state.absolute())).hexdigest()[:12]


def log_path(logs: Path, name: str) -> Path:
    """Where a unit's output goes."""
    return logs / f"{name}.log"
