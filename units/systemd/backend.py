"""`UnitBackend` over systemd: orders and states over the system bus, files in its directory, logs from its journal.

`run` keeps the connection; whatever is asked while there is none fails with `BackendLost` at once, and what systemd
runs goes on running. Status changes come as signals that only say *that* a unit changed; what it is then is read, so
a listener never sees an old state last.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path

from core.paths import Layout
from core.tasks import Backoff
from units.backend import ActiveState, BackendLost, UnitFileChange, UnitJobFailed, UnitStatus
from units.changes import ChangeFeed, ChangeListener
from units.names import ENGINE_PREFIX, GATE_PREFIX, is_generated
from units.systemd.bus import SYSTEM_BUS, Bus, BusCallFailed
from units.systemd.files import read_unit_files, write_drop_in, write_unit_files
from units.systemd.journal import follow_journal, read_journal
from units.systemd.manager import Manager
from units.systemd.status import CHANGE_STAMP, STATUS_PROPERTIES, parse_seconds, parse_status

CONNECT_TIMEOUT_S = 10.0
STATIC_UNIT_TIMEOUT_S = 30.0
JOB_MARGIN_S = 30.0
INFINITY_S = 3600.0
"""What an infinite timeout of a unit counts as."""

STATUS_TRIES = 5
TIMEOUT_PROPERTIES = ("Service.TimeoutStartUSec", "Service.TimeoutStopUSec", "Service.RestartUSec")


class SystemdBackend:
    """See `units.backend.UnitBackend`."""

    name = "systemd"

    def __init__(self, units: Path, *, bus_address: str = SYSTEM_BUS) -> None:
        self._units = units
        self._bus_address = bus_address
        self._feed = ChangeFeed()
        self._ready = asyncio.Event()
        self._reloading = asyncio.Lock()
        self._connected: Manager | None = None
        self._why_lost = "there is no connection to systemd over the system bus yet"

    @classmethod
    def from_layout(cls, layout: Layout) -> "SystemdBackend":
        return cls(layout.units)

    async def run(self) -> None:
        bus = Bus(self._bus_address)
        manager = Manager(bus, lambda name: self._feed.announce([name]))
        backoff = Backoff(0.1, 5.0)
        try:
            while True:
                try:
                    await manager.connect(timeout_s=CONNECT_TIMEOUT_S)
                    await self._announce_all(manager)
                except (BackendLost, BusCallFailed) as error:
                    self._why_lost = error.message
                    await asyncio.sleep(backoff.next_s())
                    continue
                self._connected = manager
                self._ready.set()
                backoff.reset()
                await manager.wait_closed()
                self._disconnect()
                self._why_lost = "the connection to systemd over the system bus was lost a moment ago"
        finally:
            self._disconnect()
            await asyncio.shield(bus.close())

    async def wait_ready(self) -> None:
        await self._ready.wait()

    async def read_files(self) -> dict[str, str]:
        return read_unit_files(self._units)

    async def apply_files(self, changes: Sequence[UnitFileChange]) -> None:
        if not changes:
            return
        async with self._reloading:  # a reload that began before our last write would not see it
            write_unit_files(self._units, changes)
            await self._manager.Reload()
        # A failed unit whose file is gone would be remembered for ever.
        gone = [change.name for change in changes if change.text is None]
        await asyncio.gather(*(self._manager.ResetFailedUnit(name) for name in gone))
        self._feed.announce(change.name for change in changes)

    async def apply_drop_in(self, unit: str, text: str | None, *, users: Sequence[str]) -> bool:
        async with self._reloading:
            if not write_drop_in(self._units, unit, text):
                return False
            await self._manager.Reload()
        running = [user for user in users if (await self.read_status(user)).active_state is not ActiveState.INACTIVE]
        for user in running:
            await self.stop(user)
        result = await self._manager.RestartUnit(unit, _static_unit_limit_s)
        for user in running:
            await self.start(user)
        if result != "done":
            raise UnitJobFailed(
                f"systemd could not restart {unit}: its job ended as {result}", hint=f"journalctl -u {unit}"
            )
        return True

    async def read_status(self, name: str) -> UnitStatus:
        # Each property is a call of its own, so they are of one moment only if nothing changed from first to last.
        values: list[object] = []
        for _ in range(STATUS_TRIES):
            before, *values, after = await self._manager.Get(name, (CHANGE_STAMP, *STATUS_PROPERTIES, CHANGE_STAMP))
            if before == after:
                break
        return parse_status(name, dict(zip(STATUS_PROPERTIES, values, strict=True)))

    async def start(self, name: str) -> None:
        try:
            result = await self._manager.StartUnit(name, partial(self._job_limit_s, name))
        except BusCallFailed as error:
            raise UnitJobFailed(error.message, hint=f"systemctl status {name}") from error
        await self._check_job(name, "start", result)

    async def stop(self, name: str) -> None:
        result = await self._manager.StopUnit(name, partial(self._job_limit_s, name))
        await self._check_job(name, "stop", result)
        await self._check_empty(name)

    async def restart(self, name: str) -> None:
        try:
            result = await self._manager.RestartUnit(name, partial(self._job_limit_s, name))
        except BusCallFailed as error:
            raise UnitJobFailed(error.message, hint=f"systemctl status {name}") from error
        await self._check_job(name, "restart", result)

    async def kill(self, name: str, signal: int) -> None:
        await self._manager.KillUnit(name, signal)

    async def reset_failed(self, name: str) -> None:
        await self._manager.ResetFailedUnit(name)

    def changes(self) -> AsyncIterator[UnitStatus]:
        return self._read_changes(self._feed.listen())

    async def read_log(self, name: str, lines: int) -> list[str]:
        return await read_journal(name, lines)

    def follow_log(self, name: str, lines: int) -> AsyncIterator[str]:
        return follow_journal(name, lines)

    async def read_pids(self, name: str) -> list[int]:
        return await self._manager.GetUnitProcesses(name)

    @property
    def _manager(self) -> Manager:
        if self._connected is None:
            raise BackendLost(self._why_lost, hint="systemctl status dbus")
        return self._connected

    def _disconnect(self) -> None:
        self._connected = None
        self._ready.clear()

    async def _announce_all(self, manager: Manager) -> None:
        """After a (re)connect: whatever happened meanwhile was not told."""
        known = await manager.ListUnitsByPatterns([f"{ENGINE_PREFIX}*", f"{GATE_PREFIX}*"])
        self._feed.announce({*filter(is_generated, known), *read_unit_files(self._units)})

    async def _read_changes(self, listener: ChangeListener) -> AsyncIterator[UnitStatus]:
        while True:
            name = await listener.next_name()
            await self._ready.wait()
            try:
                status = await self.read_status(name)
            except BackendLost:
                continue  # the reconnect announces every unit again
            yield status

    async def _job_limit_s(self, name: str) -> float:
        """How long a job may take by the unit's own limits: stop (TERM, KILL, and what follows), wait, start."""
        found = await self._manager.Get(name, TIMEOUT_PROPERTIES)
        start_s, stop_s, delay_s = (parse_seconds(value, infinity_s=INFINITY_S) for value in found)
        return start_s + 3 * stop_s + delay_s + JOB_MARGIN_S

    async def _check_job(self, name: str, order: str, result: str) -> None:
        if result == "done":
            return
        status = await self.read_status(name)
        raise UnitJobFailed(
            f"systemd could not {order} {name}: its job ended as {result}, the unit is {status.active_state} "
            f"({status.sub_state}), result {status.result}, exit status {status.exec_main_status}",
            hint=f"journalctl -u {name}",
        )

    async def _check_empty(self, name: str) -> None:
        pids = await self.read_pids(name)
        if pids and (await self.read_status(name)).active_state in (ActiveState.INACTIVE, ActiveState.FAILED):
            raise UnitJobFailed(f"{name} is stopped, but processes of it are left and cannot be killed: {pids}")


async def _static_unit_limit_s() -> float:
    """A socket has none of a service's timeouts to be asked for."""
    return STATIC_UNIT_TIMEOUT_S
