"""systemd's Manager, typed, spelt as in its own documentation (org.freedesktop.systemd1), and the waiting for jobs.

`StartUnit` and its like only queue a job. Its end comes as the signal `JobRemoved`, possibly before the reply that
names the job; so results that nobody waits for yet are kept while an order is under way.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from units.backend import BackendLost
from units.names import ENGINE_PREFIX, GATE_PREFIX, is_generated
from units.systemd.bus import MANAGER, PROPERTIES, Bus, BusCallFailed, Signals
from units.systemd.status import unit_name, unit_path

T = TypeVar("T")

MANAGER_PATH = "/org/freedesktop/systemd1"

CALL_TIMEOUT_S = 25.0
RELOAD_TIMEOUT_S = 120.0
"""PID 1 reads every unit again, and answers nothing else meanwhile: 0.3 s with 500 units."""

Limit = Callable[[], Awaitable[float]]
"""Says how many seconds a job may take; asked only about one that is not over soon."""

SOON_S = 5.0

_NO_SUCH_UNIT = ("org.freedesktop.systemd1.NoSuchUnit", "org.freedesktop.systemd1.LoadFailed")
_NO_SUCH_PROCESS = ("org.freedesktop.systemd1.NoSuchProcess", "org.freedesktop.DBus.Error.InvalidArgs")


class Manager:
    """Calls and jobs over one `Bus`. `on_change` hears the name of every unit of ours that changed."""

    def __init__(self, bus: Bus, on_change: Callable[[str], None]) -> None:
        self._bus = bus
        self._on_change = on_change
        self._jobs: dict[str, asyncio.Future[str]] = {}
        self._early: dict[str, str] = {}
        self._orders = 0
        """Orders whose reply has not come yet; only then are early results kept."""

    async def connect(self, *, timeout_s: float) -> None:
        """Raises: BackendLost."""
        prefixes = tuple(unit_path(prefix) for prefix in (ENGINE_PREFIX, GATE_PREFIX))
        signals = Signals(self._on_job_removed, self._on_unit_changed, prefixes)
        await self._bus.connect(signals, timeout_s=timeout_s)

    async def wait_closed(self) -> None:
        """Return when the connection is gone; whoever waits for a job has been told by then."""
        await self._bus.wait_closed()
        lost = BackendLost("the system bus was lost while a job ran; what runs goes on running")
        for waiting in self._jobs.values():
            if not waiting.done():
                waiting.set_exception(lost)
        self._jobs.clear()

    async def StartUnit(self, name: str, limit_s: Limit) -> str:  # noqa: N802 - spelt like the original
        """The job's result, `done` when it worked. Raises: BackendLost, BusCallFailed."""
        return await self._run_job("StartUnit", name, limit_s)

    async def StopUnit(self, name: str, limit_s: Limit) -> str:  # noqa: N802
        """The job's result; `done` for a unit that nobody knows."""
        try:
            return await self._run_job("StopUnit", name, limit_s)
        except BusCallFailed as error:
            return _unless(error, _NO_SUCH_UNIT, "done")

    async def RestartUnit(self, name: str, limit_s: Limit) -> str:  # noqa: N802
        """The job's result. It ends when the unit is started again."""
        return await self._run_job("RestartUnit", name, limit_s)

    async def KillUnit(self, name: str, signal: int) -> None:  # noqa: N802
        """Signal every process of the unit; none to signal is no failure."""
        try:
            await self._call("KillUnit", "ssi", name, "all", signal)
        except BusCallFailed as error:
            _unless(error, _NO_SUCH_UNIT + _NO_SUCH_PROCESS, None)

    async def ResetFailedUnit(self, name: str) -> None:  # noqa: N802
        try:
            await self._call("ResetFailedUnit", "s", name)
        except BusCallFailed as error:
            _unless(error, _NO_SUCH_UNIT, None)

    async def Reload(self) -> None:  # noqa: N802
        """Make systemd read all unit files again."""
        await self._call("Reload", "", timeout_s=RELOAD_TIMEOUT_S)

    async def ListUnitsByPatterns(self, patterns: list[str]) -> list[str]:  # noqa: N802
        """Names of the units in memory that match, whatever their state."""
        (rows,) = await self._call("ListUnitsByPatterns", "asas", [], patterns)
        return [row[0] for row in rows] if isinstance(rows, list) else []

    async def GetUnitProcesses(self, name: str) -> list[int]:  # noqa: N802
        """Every process in the unit's cgroup and below."""
        try:
            (rows,) = await self._call("GetUnitProcesses", "s", name)
        except BusCallFailed as error:
            return _unless(error, _NO_SUCH_UNIT, [])
        return [row[1] for row in rows] if isinstance(rows, list) else []

    async def Get(self, name: str, properties: Iterable[str]) -> list[object]:  # noqa: N802
        """Properties of a unit (`SubState`, `Service.MainPID`), asked for in one go; systemd loads it where it has not.

        Never all of them: systemd needs 10 ms to tell the 400 of a service, most of them of no use to anybody.
        Raises: BackendLost, BusCallFailed.
        """
        return await asyncio.gather(*(self._get(name, each) for each in properties))

    async def _get(self, name: str, each: str) -> object:
        interface, _, key = each.rpartition(".")
        arguments = (f"org.freedesktop.systemd1.{interface or 'Unit'}", key)
        reply = await self._bus.call(unit_path(name), PROPERTIES, "Get", "ss", arguments, timeout_s=CALL_TIMEOUT_S)
        return reply[0]

    async def _call(
        self, method: str, signature: str, *arguments: object, timeout_s: float = CALL_TIMEOUT_S
    ) -> tuple[object, ...]:
        return await self._bus.call(MANAGER_PATH, MANAGER, method, signature, arguments, timeout_s=timeout_s)

    async def _run_job(self, method: str, name: str, limit_s: Limit) -> str:
        self._orders += 1
        try:
            (path,) = await self._call(method, "ss", name, "replace")
            job = str(path)
            if job in self._early:
                return self._early[job]
            # Orders of the same kind are merged into one job by systemd: they all wait for it.
            ended = self._jobs.setdefault(job, asyncio.get_running_loop().create_future())
        finally:
            self._orders -= 1
            if not self._orders:
                self._early.clear()
        await asyncio.wait((ended,), timeout=SOON_S)
        if ended.done():
            return ended.result()
        timeout_s = await limit_s()
        try:
            async with asyncio.timeout(max(timeout_s - SOON_S, 0.0)):
                return await asyncio.shield(ended)
        except TimeoutError as error:
            raise BackendLost(f"systemd did not end the job {method} {name} within {timeout_s:g} s") from error

    def _on_job_removed(self, job: str, unit: str, result: str) -> None:
        waiting = self._jobs.pop(job, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(result)
        if self._orders and is_generated(unit):
            self._early[job] = result

    def _on_unit_changed(self, path: str) -> None:
        name = unit_name(path)
        if is_generated(name):
            self._on_change(name)


def _unless(error: BusCallFailed, names: tuple[str, ...], value: T) -> T:
    """`value` when the error is one of these, which mean that there was nothing to do; else the error goes on."""
    if error.name in names:
        return value
    raise error
