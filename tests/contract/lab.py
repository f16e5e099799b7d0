"""Where a scenario happens: a back end, a folder that its services write to, and a way to wait for what must come.

Nothing here polls a state: waiting is for a change, a line of a log, or a file, always under a deadline.
"""

import asyncio
import contextlib
import itertools
import os
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from units.backend import ActiveState, UnitBackend, UnitFileChange, UnitStatus
from units.model import RestartPolicy, RestartWhen, ServiceUnit, UnitRecord
from units.names import engine_unit_name, gate_unit_name
from units.render import render_unit

ACTOR = str(Path(__file__).with_name("actor.py"))
ROOT = str(Path(__file__).resolve().parents[2])
ONCE = RestartPolicy(when=RestartWhen.NO)
PATIENCE_S = 30.0

_NUMBERS = itertools.count()
"""Over all labs: a unit's log outlives its file, so no name is used twice."""


class NeverHappened(AssertionError):
    """What a scenario waited for did not come."""


@dataclass(slots=True)
class Lab:
    """One back end under test. `folder` may be written to by every user."""

    backend: UnitBackend
    folder: Path
    _installed: set[str] = field(default_factory=set)

    def act(self, *role: str, **changes: object) -> ServiceUnit:
        """A unit of a fresh name whose process plays `role` (see actor.py). It does not come back unless told so."""
        return replace(self.unit((sys.executable, ACTOR, *role)), **changes)  # type: ignore[arg-type]

    def gate(self, command: tuple[str, ...], **changes: object) -> ServiceUnit:
        """A unit with a gate's name."""
        unit = self.unit(command)
        name = gate_unit_name(unit.record.runtime_id)
        return replace(unit, **{"name": name, "record": replace(unit.record, kind="gate"), **changes})  # type: ignore[arg-type]

    def unit(self, command: tuple[str, ...], **changes: object) -> ServiceUnit:
        """As `act`, with a command of its own."""
        runtime_id = f"lab-{os.getpid()}-{next(_NUMBERS)}"
        unit = ServiceUnit(
            name=engine_unit_name(runtime_id),
            description=f"contract suite {runtime_id}",
            exec_start=command,
            record=UnitRecord(runtime_id),
            restart=ONCE,
            timeout_start_s=10.0,
            timeout_stop_s=5.0,
            sandbox=None,
        )
        return replace(unit, **changes)  # type: ignore[arg-type]

    def file(self, name: str) -> Path:
        return self.folder / f"{next(_NUMBERS)}-{name}"

    async def install(self, *units: ServiceUnit) -> None:
        self._installed.update(unit.name for unit in units)
        await self.backend.apply_files([UnitFileChange(unit.name, render_unit(unit)) for unit in units])

    async def start(self, unit: ServiceUnit) -> UnitStatus:
        """Install and start; the status right after."""
        await self.install(unit)
        await self.backend.start(unit.name)
        return await self.backend.read_status(unit.name)

    async def clean_up(self) -> None:
        """Stop and remove whatever this lab installed."""
        names, self._installed = sorted(self._installed), set()
        await asyncio.gather(*(self.backend.stop(name) for name in names))
        await self.backend.apply_files([UnitFileChange(name, None) for name in names])

    async def until(self, name: str, wanted: Callable[[UnitStatus], bool], what: str = "") -> UnitStatus:
        """The first status that is wanted, told by `changes()`."""
        changes = self.backend.changes()
        status = await self.backend.read_status(name)
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not wanted(status):
                    status = await next_of(changes, name)
        except TimeoutError:
            raise NeverHappened(f"{name} was never {what or 'as wanted'}; it is {status}") from None
        finally:
            await close(changes)
        return status

    async def until_state(self, name: str, state: ActiveState) -> UnitStatus:
        return await self.until(name, lambda status: status.active_state is state, state.value)

    async def until_line(self, name: str, line: str) -> None:
        """Wait until the unit's log holds `line`."""
        await self._until_log(name, lambda found: found == line, line, 1)

    async def until_said(self, name: str, words: str, times: int = 1) -> None:
        """Wait until so many lines of the unit's log, over all its lives, have held `words`."""
        await self._until_log(name, lambda found: words in found, words, times)

    async def _until_log(self, name: str, wanted: Callable[[str], bool], what: str, times: int) -> None:
        log = self.backend.follow_log(name, 1000)
        seen: list[str] = []
        try:
            async with asyncio.timeout(PATIENCE_S):
                async for found in log:
                    seen.append(found)
                    times -= wanted(found)
                    if times == 0:
                        return
        except TimeoutError:
            raise NeverHappened(f"{name} never wrote {what!r}; it wrote {seen[-5:]}") from None
        finally:
            await close(log)

    async def until_text(self, path: Path, wanted: Callable[[str], bool] = bool) -> str:
        """Wait until a service has written a file (looked at often: inotify is not in the standard library)."""
        text = ""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    with contextlib.suppress(FileNotFoundError):
                        text = path.read_text()
                        if wanted(text):
                            return text
                    await asyncio.sleep(0.01)
        raise NeverHappened(f"{path} was never as wanted; it is {text!r}")


async def next_of(changes: AsyncIterator[UnitStatus], name: str) -> UnitStatus:
    """The next change of one unit."""
    async for status in changes:
        if status.name == name:
            return status
    raise NeverHappened("the changes ended")


async def close(stream: AsyncIterator[object]) -> None:
    closing = getattr(stream, "aclose", None)
    if closing is not None:
        await closing()


def lives(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
