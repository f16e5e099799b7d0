"""The processes of a unit in a cgroup of its own (cgroup v2): the kernel keeps count, whatever they do.

The units' cgroups lie below one that belongs to the supervisor's state directory; its path is kept there, so that a
supervisor that was started elsewhere still finds them. Where cgroup v2 is not mounted or not writable, `open_root`
answers None and `units.embedded.mark` takes its place.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from units.embedded.mark import send_signal


class ProcessGroup(Protocol):
    """All processes of one unit, found again whatever they do."""

    @property
    def confirm_s(self) -> float:
        """How long after an empty answer one must ask again before it can be believed; 0: at once."""
        ...

    def prepare(self, memory_max_bytes: int) -> bool:
        """Before the fork. -1: no memory limit. False when the limit cannot be set. Raises OSError."""
        ...

    def join(self) -> None:
        """In the child, before exec. Raises OSError."""
        ...

    def read_pids(self, main: int) -> set[int]:
        """All living processes, `main` (0: none) included even before it joined."""
        ...

    def kill_now(self) -> None:
        """SIGKILL to all."""
        ...

    def was_out_of_memory(self) -> bool:
        """Whether the kernel killed one of them for exceeding the unit's limit."""
        ...

    def remove(self) -> bool:
        """Take away what `prepare` made; False when somebody is still in there."""
        ...


class CgroupGroup:
    """One unit's cgroup, and those that its processes made below it."""

    confirm_s = 0.0  # `remove` fails while anybody is in there

    def __init__(self, path: Path) -> None:
        self.path = path

    def prepare(self, memory_max_bytes: int) -> bool:
        self.path.mkdir(parents=True, exist_ok=True)
        limit = self.path / "memory.max"
        if not limit.exists():
            return memory_max_bytes < 0
        limit.write_text("max" if memory_max_bytes < 0 else str(memory_max_bytes))
        (self.path / "memory.oom.group").write_text("1")
        return True

    def join(self) -> None:
        descriptor = os.open(self.path / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
        os.write(descriptor, b"0")
        os.close(descriptor)

    def read_pids(self, main: int) -> set[int]:
        pids = {main} if main else set()
        for folder in self._folders():
            try:
                # 0: a process that our own pid namespace cannot see.
                pids.update(int(pid) for pid in (folder / "cgroup.procs").read_text().split() if pid != "0")
            except OSError:
                pass  # removed meanwhile
        return pids

    def kill_now(self) -> None:
        try:
            (self.path / "cgroup.kill").write_text("1")
        except OSError:  # before Linux 5.14
            for pid in self.read_pids(0):
                send_signal(pid, signal.SIGKILL)

    def was_out_of_memory(self) -> bool:
        try:
            events = (self.path / "memory.events").read_text().split()
        except OSError:
            return False
        return dict(zip(events[::2], events[1::2], strict=False)).get("oom_kill", "0") != "0"

    def remove(self) -> bool:
        try:
            for folder in reversed(list(self._folders())):
                folder.rmdir()
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def _folders(self) -> Iterator[Path]:
        return (Path(folder) for folder, _, _ in os.walk(self.path))


def open_root(state: Path, name: str) -> Path | None:
    """The cgroup below which the units' cgroups go: the one that `state` remembers, else `name` below our own."""
    remembered = state / "cgroup"
    try:
        root = Path(remembered.read_text())
        if _is_usable(root):
            return root
    except (OSError, ValueError):
        pass  # not there, or damaged
    own = _read_own_cgroup(Path("/proc/self"))
    if own is None:
        return None
    root = own / f"llmgw-{name}"
    if not _is_usable(root):
        return None
    _offer_memory_controller(own, root)
    remembered.write_text(str(root))
    return root


def _is_usable(root: Path) -> bool:
    """Whether cgroups can be made in `root`, which is made if need be."""
    try:
        root.mkdir(exist_ok=True)
        probe = root / "probe"
        probe.mkdir(exist_ok=True)
        can_join = (probe / "cgroup.procs").exists() and _can_join(CgroupGroup(probe))
        probe.rmdir()
    except OSError:
        return False
    return can_join


def _can_join(group: "CgroupGroup") -> bool:
    """Tried by a child that ends at once: making a cgroup may be allowed where moving into it is not."""
    pid = os.fork()
    if pid == 0:
        try:
            group.join()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def _offer_memory_controller(own: Path, root: Path) -> None:
    """Let units have memory limits, where the machine allows it (not with processes in a cgroup above: EBUSY)."""
    for folder in (own, root):
        try:
            (folder / "cgroup.subtree_control").write_text("+memory")
        except OSError:
            return


def _read_own_cgroup(process: Path) -> Path | None:
    """Our own cgroup's folder in the mounted cgroup v2 tree."""
    try:
        mounts = (process / "mountinfo").read_text().splitlines()
        groups = (process / "cgroup").read_text().splitlines()
    except OSError:
        return None
    return find_own_cgroup(mounts, groups)


def find_own_cgroup(mounts: list[str], groups: list[str]) -> Path | None:
    """Pure: from the lines of /proc/self/mountinfo and /proc/self/cgroup, which folder is ours."""
    mount = next((line.split() for line in mounts if " - cgroup2 " in line), None)
    own = next((line[3:] for line in groups if line.startswith("0::")), None)
    if mount is None or own is None or "/.." in own:
        return None
    # A container may see only a part of the tree: the mount's root is then a prefix of our own path.
    mounted_root = mount[3].rstrip("/")
    inside = own.removeprefix(mounted_root) if own.startswith(mounted_root) else own
    return Path(mount[4] + inside.rstrip("/")) if inside != "/" else Path(mount[4])
