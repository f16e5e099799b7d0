"""A supervisor of its own below a folder of its own, the back end connected to it, and nothing left afterwards."""

import asyncio
import contextlib
import itertools
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

from core.paths import Layout
from units.backend import UnitFileChange, UnitStatus
from units.embedded.backend import EmbeddedBackend
from units.embedded.procfs import read_start_ticks

ROOT = Path(__file__).resolve().parents[3]
MISBEHAVE = ROOT / "tests/fakes/misbehave.py"
PATIENCE_S = 60.0
_NUMBERS = itertools.count()


class NeverHappened(AssertionError):
    """What a test waited for did not come."""


@dataclass(slots=True)
class House:
    """One supervisor and what it runs."""

    layout: Layout
    folder: Path
    backend: EmbeddedBackend
    arguments: tuple[str, ...]
    prefix: tuple[str, ...] = ()
    """Put before the supervisor's command, to run it as somebody else."""
    process: asyncio.subprocess.Process | None = None
    names: list[str] = field(default_factory=list)

    async def open(self) -> None:
        """Start the supervisor (again), and wait until the back end is connected to it."""
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
        with (self.folder / "supervisor.log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *self.prefix, sys.executable, "-m", "units.embedded", "--state", str(self.folder), *self.arguments,
                env=environment, start_new_session=True, stderr=log,
            )  # fmt: skip
        async with asyncio.timeout(PATIENCE_S):
            await self.backend.wait_ready()

    async def crash(self) -> None:
        """SIGKILL the supervisor; return when it is gone and the back end knows."""
        await self.end(signal.SIGKILL)

    async def end(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        await self.process.wait()
        await self.until(lambda: not self.backend.is_connected, "the back end notices")

    def said(self) -> str:
        """What the supervisor logged."""
        return (self.folder / "supervisor.log").read_text()

    def pids_file(self) -> Path:
        return self.folder / f"pids-{next(_NUMBERS)}"

    def misbehave(self, pids: Path, *options: str) -> str:
        return " ".join((sys.executable, str(MISBEHAVE), "--pids", str(pids), *options))

    async def install(self, command: str, *lines: str, unit: tuple[str, ...] = (), kind: str = "engine") -> str:
        """Write a unit with these further lines of [Service] and of [Unit]; returns its name."""
        name = f"llmgw-{kind}-t{next(_NUMBERS)}.service"
        await self.write(name, command, *lines, unit=unit)
        return name

    async def write(self, name: str, command: str, *lines: str, unit: tuple[str, ...] = ()) -> None:
        self.names.append(name)
        service = ("TimeoutStopSec=1", "RestartSec=100ms", *lines)
        text = "\n".join(("[Unit]", *unit, "[Service]", f"ExecStart={command}", *service, ""))
        await self.backend.apply_files([UnitFileChange(name, text)])

    async def until_status(self, name: str, wanted: Callable[[UnitStatus], bool]) -> UnitStatus:
        """The first status that is wanted."""
        changes = self.backend.changes()
        status = await self.backend.read_status(name)
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not wanted(status):
                    found = await anext(changes)
                    status = found if found.name == name else status
        except TimeoutError:
            raise NeverHappened(f"{name} was never as wanted; it is {status}\n{self.said()[-2000:]}") from None
        return status

    async def until_pids(self, name: str, count: int) -> list[int]:
        """Until the unit has so many processes."""
        async with asyncio.timeout(PATIENCE_S):
            while len(pids := await self.backend.read_pids(name)) != count:  # noqa: ASYNC110 - no event for it
                await asyncio.sleep(0.01)
        return pids

    async def until_exactly(self, name: str, wanted: set[int]) -> None:
        """Until the unit has these processes and no other: one that only forks and ends is seen for a moment."""
        async with asyncio.timeout(PATIENCE_S):
            while set(await self.backend.read_pids(name)) != wanted:  # noqa: ASYNC110 - no event for it
                await asyncio.sleep(0.01)

    async def until(self, is_so: Callable[[], bool], what: str) -> None:
        """For what sends no event: files and processes."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not is_so():  # noqa: ASYNC110 - a file or a foreign process sends no event
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise NeverHappened(f"never: {what}\n{self.said()[-2000:]}") from None


def recorded(path: Path) -> list[tuple[int, str]]:
    """The processes that `misbehave` made and that still live, with their roles."""
    lines = path.read_text().splitlines() if path.exists() else []
    parts = [line.split() for line in lines]
    return [(int(pid), role) for pid, ticks, role in parts if read_start_ticks(int(pid)) == int(ticks)]


@contextlib.asynccontextmanager
async def house(*arguments: str, prefix: tuple[str, ...] = (), owner: int = -1) -> AsyncIterator[House]:
    """Open, and clean up whatever happened: no process and no file is left."""
    folder = Path(tempfile.mkdtemp(prefix="llmgw-emb-"))
    if owner >= 0:
        os.chown(folder, owner, owner)
    layout = Layout.under(folder)
    made = House(layout, folder, EmbeddedBackend(layout), arguments, prefix)
    running = asyncio.create_task(made.backend.run())
    try:
        await made.open()
        yield made
    finally:
        await _clean_up(made)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        shutil.rmtree(folder, ignore_errors=True)


async def _clean_up(made: House) -> None:
    process = made.process
    if process is not None and process.returncode is None:
        process.send_signal(signal.SIGCONT)
    else:
        await made.open()
    async with asyncio.timeout(PATIENCE_S):
        await made.backend.shutdown()
        assert made.process is not None
        await made.process.wait()
