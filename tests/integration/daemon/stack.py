"""A supervisor and a daemon as real processes below one state directory, for tests."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from core.api import NodeState, RuntimeStatus
from core.client import DaemonClient, DaemonUnavailable
from core.paths import Layout
from tests.rewriting import rewrite
from units.names import engine_unit_name

ROOT = Path(__file__).resolve().parents[3]
STEP_S = 0.05
PATIENCE_S = 60.0


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def port_range(size: int = 20) -> tuple[int, int]:
    """A stretch of ports for engines, below the ephemeral range, different for each test process."""
    low = 20000 + (os.getpid() * 37 + int.from_bytes(os.urandom(1), "big") * 20) % 10000
    return low, low + size - 1


class Stack:
    """The processes of one node without its gateway. `async with` it; nothing survives the block."""

    def __init__(self, state: Path, config: str, *, ports: int = 20, unseen: bool = False) -> None:
        """`unseen`: the daemon does not notice by itself that the config was written, and reads it when told to."""
        self.layout = Layout.under(state)
        self._ports = port_range(ports)
        if unseen:
            # Only the folder of the link is watched.
            (state / "elsewhere").mkdir()
            self.layout.config.symlink_to(state / "elsewhere" / "config.yaml")
        self.write_config(config)
        self.client = DaemonClient(self.layout.daemon_socket)
        self.supervisor: subprocess.Popen[bytes] | None = None
        self.daemon: subprocess.Popen[bytes] | None = None

    def write_config(self, text: str) -> None:
        rewrite(self.layout.config, self.config_text(text))

    def config_text(self, text: str) -> str:
        """With what every config of this stack says."""
        low, high = self._ports
        return f"server: {{port: {free_port()}}}\nports: {{backends: [{low}, {high}]}}\n{text}"

    async def __aenter__(self) -> "Stack":
        self.start_supervisor()
        self.start_daemon()
        try:
            await self.until(lambda state: True)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.__aexit__()
        for process in (self.daemon, self.supervisor):
            if process is not None:
                process.kill()
                process.wait()
        for pid in [*self.engine_pids(), *self._pids_with(self.layout.gates)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def start_supervisor(self) -> None:
        self.supervisor = self._spawn("units.embedded", "--state", str(self.layout.config.parent))

    def start_daemon(self) -> None:
        self.daemon = self._spawn("daemon")

    def _spawn(self, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        log = open(self.layout.config.parent / f"{module}.log", "ab")  # noqa: SIM115 - the child keeps it
        with log:
            return subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                cwd=ROOT,
                env={**os.environ, "LLMGW_STATE": str(self.layout.config.parent)},
                stdout=log,
                stderr=log,
            )

    def kill(self, process: subprocess.Popen[bytes] | None) -> None:
        """SIGKILL and reap."""
        assert process is not None
        process.kill()
        process.wait()

    def engine_pids(self) -> list[int]:
        """Every living process whose home is one of ours."""
        return self._pids_with(self.layout.homes)

    def _pids_with(self, folder: Path) -> list[int]:
        homes = os.fsencode(folder)
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if homes in (entry / "environ").read_bytes():
                        found.append(int(entry.name))
        return found

    async def until(self, done: Callable[[NodeState], bool]) -> NodeState:
        """Ask for the state until it is as wanted; the last state is in the error when it never is."""
        state: NodeState | None = None
        try:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    with contextlib.suppress(DaemonUnavailable):
                        state = await self.client.state()
                        if done(state):
                            return state
                    if self.daemon is not None and self.daemon.poll() is not None:
                        raise TimeoutError  # it is dead: no state will come
                    await asyncio.sleep(STEP_S)
        except TimeoutError:
            logs = "\n".join(p.read_text()[-3000:] for p in self.layout.config.parent.glob("*.log"))
            raise AssertionError(f"never happened; last state {state}\n{logs}") from None

    async def until_runtime(self, runtime_id: str, state: str) -> RuntimeStatus:
        node = await self.until(lambda s: any(r.id == runtime_id and r.state == state for r in s.runtimes))
        return next(r for r in node.runtimes if r.id == runtime_id)

    def unit_text(self, runtime_id: str) -> str:
        """The generated unit file as it is now; empty when there is none."""
        with contextlib.suppress(FileNotFoundError):
            return (self.layout.units / engine_unit_name(runtime_id)).read_text()
        return ""

    def log_text(self) -> str:
        return (self.layout.config.parent / "daemon.log").read_text()


@contextlib.asynccontextmanager
async def running(state: Path, config: str, *, ports: int = 20, unseen: bool = False) -> AsyncIterator[Stack]:
    """A stack that answers; see there."""
    async with Stack(state, config, ports=ports, unseen=unseen) as stack:
        yield stack
