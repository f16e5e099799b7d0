"""One test host: boot it, run commands in it, read its journal, freeze it, pull its plug.

`Host` is a context manager. Its disk is an overlay over the base tree (and over `layers`, topmost first), kept until
the `with` ends: `shutdown()` or `kill()` and then `boot()` is a reboot with the same disk and a new boot id.
`keep_as_layer` saves what the host changed, so that a package is installed once and other hosts boot from the result.
"""

import os
import select
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal

from tests.hosts.harness import cgroups
from tests.hosts.harness.estate import delete_namespace, estate, namespace_exists
from tests.hosts.harness.net import Network, ip
from tests.hosts.harness.tree import base_tree

_BOOT_LIMIT_S = 90.0
_STOP_LIMIT_S = 60.0
_INIT_SCRIPT = Path(__file__).with_name("init.sh")
_CREDENTIALS = struct.Struct("=iii")  # struct ucred: pid, uid, gid
_ENVIRONMENT = {
    "HOME": "/root",
    "TERM": "dumb",
    "LANG": "C.UTF-8",
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "DEBIAN_FRONTEND": "noninteractive",
}


class HostFailed(Exception):
    """The host did not boot or did not stop; the message holds its console."""


@dataclass(frozen=True, slots=True)
class Completed:
    """How a command in a host ended."""

    argv: tuple[str, ...]
    code: int
    stdout: str
    stderr: str


class HostCommandFailed(Exception):
    """A command in a host ended with something else than 0."""

    def __init__(self, host: str, done: Completed) -> None:
        super().__init__(
            f"{host}: {' '.join(done.argv)} ended with {done.code}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        )
        self.done = done


class Host:
    """A booted Debian. See the module's docstring."""

    def __init__(
        self,
        name: str,
        *,
        layers: Sequence[Path] = (),
        binds: Sequence[tuple[Path | str, str]] = (),
        cgroup: Literal["unified", "hybrid"] = "unified",
        net: Network | None = None,
        udev: bool = False,
        tree: Path | None = None,
    ) -> None:
        self.name = name
        self.init_pid = 0
        """systemd's pid as the test process sees it; 0 while the host is down."""
        self.boot_s = 0.0
        """How long the last boot took."""
        self._lowers = [*layers, tree or base_tree()]
        self._binds = [f"{source}:{target}" for source, target in binds]
        self._mode = cgroup
        self._net = net
        self._udev = udev
        self._state = estate().directory / name
        self._namespace = f"{estate().prefix}-{name}"
        self._group = cgroups.unified_root() / estate().prefix / name
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Host":
        for part in ("upper", "work", "root", "journal", "notify"):
            (self._state / part).mkdir(parents=True)
        try:
            self.boot()
        except BaseException:
            self.destroy()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.destroy()

    def boot(self) -> None:
        """Boot, and wait until systemd says that it has started everything.

        Raises: HostFailed.
        """
        started = time.monotonic()
        self._prepare()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            path = self._state / "notify" / "socket"
            path.unlink(missing_ok=True)
            notify.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            notify.bind(str(path))
            self._process = self._spawn()
            self.init_pid = self._wait_ready(notify, self._process)
        self.boot_s = time.monotonic() - started

    def run(
        self,
        *argv: str,
        check: bool = True,
        timeout_s: float = 60.0,
        stdin: str = "",
        env: Mapping[str, str] | None = None,
    ) -> Completed:
        """Run a command in the host, as root, outside any unit.

        Raises: HostCommandFailed when `check` and it did not end with 0, subprocess.TimeoutExpired.
        """
        done = subprocess.run(
            self.command(argv, env=env),
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
        completed = Completed(argv, done.returncode, done.stdout, done.stderr)
        if check and completed.code != 0:
            raise HostCommandFailed(self.name, completed)
        return completed

    def command(self, argv: Sequence[str], *, env: Mapping[str, str] | None = None) -> list[str]:
        """What to run outside in order to run `argv` inside; for tests that need a pipe or a process of their own."""
        if not self.init_pid:
            raise HostFailed(f"host {self.name} is down")
        environment = [f"{name}={value}" for name, value in {**_ENVIRONMENT, **(env or {})}.items()]
        enter = ["nsenter", "--target", str(self.init_pid), "--all", "--wdns=/", "--", "env", "-i", *environment]
        # A cgroup beside the host's units, so that a kill or a freeze of the host takes the command along.
        joins = 'echo $$ >"$0" && exec "$@"'
        return ["sh", "-c", joins, str(self._group / "exec" / "cgroup.procs"), *enter, *argv]

    def unit(
        self,
        *argv: str,
        properties: Mapping[str, str] | None = None,
        check: bool = True,
        timeout_s: float = 60.0,
    ) -> Completed:
        """Run a command as a transient unit of the host: its own cgroup, journal, sandbox."""
        options = [f"--property={name}={value}" for name, value in (properties or {}).items()]
        line = ("systemd-run", "--quiet", "--wait", "--pipe", "--collect", *options, "--", *argv)
        return self.run(*line, check=check, timeout_s=timeout_s)

    def journal(self, *args: str) -> str:
        """`journalctl ARGS` on the host's journal, whether the host runs or not."""
        argv = ["journalctl", "--no-pager", f"--directory={self._state / 'journal'}", *args]
        return subprocess.run(argv, check=True, capture_output=True, text=True, errors="replace", timeout=30).stdout

    def path(self, inside: str) -> Path:
        """A path in the running host, reachable from outside."""
        return Path(f"/proc/{self.init_pid}/root") / inside.lstrip("/")

    def bus_address(self) -> str:
        """The host's system bus, as `DBUS_SYSTEM_BUS_ADDRESS` for a process outside."""
        return f"unix:path={self.path('/run/dbus/system_bus_socket')}"

    def pids(self) -> set[int]:
        """Every process of the host, as the test process sees them."""
        found: set[int] = set()
        for directory, _, _ in os.walk(self._group):
            found.update(int(line) for line in (Path(directory) / "cgroup.procs").read_text().split())
        return found

    def freeze(self) -> None:
        """Hang the whole host: its kernel still accepts connections, nobody answers."""
        (self._group / "cgroup.freeze").write_text("1")

    def thaw(self) -> None:
        (self._group / "cgroup.freeze").write_text("0")

    def kill(self) -> None:
        """Power loss: the cable goes dead first, or peers would be told at once by a reset; then nothing runs."""
        if self._net is not None:
            self._net.cut(self.name)
        cgroups.kill_all(self._group)
        self._forget_process()

    def shutdown(self) -> None:
        """Power off in order, as an operator would.

        Raises: HostFailed when it does not end in time.
        """
        self.run("systemctl", "poweroff", "--no-wall", check=False)
        if not cgroups.wait_empty(self._group, _STOP_LIMIT_S):
            console = self._console()
            self.kill()
            raise HostFailed(f"host {self.name} did not power off in {_STOP_LIMIT_S:.0f} s\n{console}")
        self._forget_process()

    def reboot(self) -> None:
        """Power off in order and boot again, with the same disk."""
        self.shutdown()
        self.boot()

    def keep_as_layer(self, directory: Path) -> Path:
        """Save what this host (which must be down) changed on its disk, for the `layers` of others."""
        if self.init_pid:
            raise HostFailed(f"host {self.name} runs: shut it down before its disk is kept")
        partial = directory.with_name(f"{directory.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        # cp, because whiteouts are device nodes and opaque directories are extended attributes.
        subprocess.run(["cp", "-a", str(self._state / "upper"), str(partial)], check=True, timeout=300)
        for own in ("etc/machine-id", "etc/hostname", "etc/hosts"):
            (partial / own).unlink(missing_ok=True)
        shutil.rmtree(directory, ignore_errors=True)
        partial.rename(directory)
        return directory

    def destroy(self) -> None:
        """Kill whatever runs and remove the disk."""
        cgroups.kill_all(self._group)
        self._forget_process()
        cgroups.remove_everywhere(estate().prefix, self.name)
        delete_namespace(self._namespace)
        shutil.rmtree(self._state, ignore_errors=True)

    def _forget_process(self) -> None:
        self.init_pid = 0
        if self._process is not None:
            self._process.wait(timeout=_STOP_LIMIT_S)
            self._process = None

    def _prepare(self) -> None:
        cgroups.remove_everywhere(estate().prefix, self.name)
        group = cgroups.create_unified(estate().prefix, self.name)
        (group / "exec").mkdir(exist_ok=True)
        if not namespace_exists(self._namespace):
            ip("netns", "add", self._namespace)
        addresses = {self.name: "127.0.1.1"}
        if self._net is not None:
            self._net.plug(self.name, self._namespace)
            addresses = self._net.addresses
        lines = ["127.0.0.1 localhost", "::1 localhost", *(f"{value} {name}" for name, value in addresses.items())]
        (self._state / "hosts").write_text("\n".join(lines) + "\n")

    def _spawn(self) -> subprocess.Popen[bytes]:
        groups = [self._group]
        if self._mode == "hybrid":
            groups += cgroups.create_legacy(estate().prefix, self.name)
        joins = "; ".join(f"echo $$ >'{group}/cgroup.procs'" for group in groups)
        lower = ":".join(str(path) for path in self._lowers)
        # The network namespace is entered before /sys is mounted: /sys/class/net is then the host's own.
        argv = ["nsenter", f"--net=/run/netns/{self._namespace}", "setsid", "unshare"]
        argv += ["--pid", "--fork", "--kill-child=SIGKILL", "--mount", "--cgroup", "--uts", "--ipc"]
        argv += ["--propagation", "private", "bash", "-eu", str(_INIT_SCRIPT), self.name, lower, str(self._state)]
        argv += [self._mode, "udev" if self._udev else "noudev", *self._binds]
        with (self._state / "console.log").open("wb") as console:
            return subprocess.Popen(
                ["sh", "-ec", f'{joins}; exec "$@"', "sh", *argv],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
            )

    def _wait_ready(self, notify: socket.socket, process: subprocess.Popen[bytes]) -> int:
        """The pid of the systemd that wrote READY=1: its sender's credentials, as our pid namespace sees them."""
        pidfd = os.pidfd_open(process.pid)
        deadline = time.monotonic() + _BOOT_LIMIT_S
        try:
            while (left_s := deadline - time.monotonic()) > 0:
                readable, _, _ = select.select([notify.fileno(), pidfd], [], [], left_s)
                if notify.fileno() in readable:
                    message, ancillary, _, _ = notify.recvmsg(4096, socket.CMSG_SPACE(_CREDENTIALS.size))
                    if b"READY=1" in message.splitlines():
                        pid: int = _CREDENTIALS.unpack(ancillary[0][2])[0]
                        return pid
                elif pidfd in readable:
                    break
        finally:
            os.close(pidfd)
        raise HostFailed(f"host {self.name} did not boot\n{self._console()}{self._waiting_for(process.pid)}")

    def _waiting_for(self, launcher: int) -> str:
        """What a host that runs, and yet has not booted, is busy with."""
        children = Path(f"/proc/{launcher}/task/{launcher}/children")
        if not children.exists() or not (pids := children.read_text().split()):
            return ""
        self.init_pid = int(pids[0])
        try:
            jobs = self.run("systemctl", "list-jobs", check=False, timeout_s=10).stdout
            return jobs + self.run("journalctl", "--no-pager", "-n", "30", check=False, timeout_s=10).stdout
        except subprocess.TimeoutExpired:
            return "and does not answer systemctl"

    def _console(self) -> str:
        return (self._state / "console.log").read_text(errors="replace")[-4000:]
