"""The set of units: carries out orders in the right order, and lets one unit's fate move others.

`run` owns one task per unit and those that follow from a change (a bound unit stops, an upheld one starts). It ends
when cancelled; the services do not. What goes with what is decided in `order.py`, a unit's own course in `unit.py`.
"""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path

from core.errors import BugError, LlmgwError
from core.tasks import Backoff, supervise
from units.backend import ActiveState, UnitJobFailed, UnitStatus
from units.embedded import order
from units.embedded.catalog import Catalog
from units.embedded.jobs import JobResult
from units.embedded.memory import BIRTH_SUFFIX, STATE_SUFFIX
from units.embedded.parse import EmbeddedUnit
from units.embedded.site import Site
from units.embedded.unit import AUTO_RESTART, Unit

_UP = (ActiveState.ACTIVE, ActiveState.ACTIVATING)
_SHORTEST_PAUSE_S = 0.1
"""Before an upheld unit is started again: without a start limit it could fail in a circle."""

_DOWN = (ActiveState.INACTIVE, ActiveState.FAILED)


class Supervisor:
    """Made once; `adopt`, then `run`."""

    def __init__(self, site: Site) -> None:
        self.listeners: set[Callable[[UnitStatus], None]] = set()
        self._site = site
        self._catalog = Catalog(site.units, site.log)
        self._units: dict[str, Unit] = {}
        self._actors: dict[str, asyncio.Task[None]] = {}
        self._starting: dict[str, asyncio.Task[JobResult]] = {}
        self._stopping: dict[str, int] = {}
        """Units that an order is stopping, with how many such orders: nothing upholds what they uphold."""
        self._tasks = asyncio.TaskGroup()
        self._known_specs: dict[str, EmbeddedUnit] = {}
        """Kept until a file is read or a unit dropped: every change of state asks for it."""
        self._is_running = False
        self._is_closing = False

    def adopt(self) -> None:
        """Read all files and take over what an earlier supervisor left. Before `run`, inside the loop."""
        self._read_files()
        for path in sorted(self._site.state.iterdir()):
            if path.suffix in (STATE_SUFFIX, BIRTH_SUFFIX) and path.stem.endswith(".service"):
                self._find_or_make(path.stem)
        for unit in self._units.values():
            unit.adopt()

    async def run(self) -> None:
        """Until cancelled."""
        async with self._tasks:
            self._is_running = True
            for unit in list(self._units.values()):
                self._begin(unit)
            for unit in list(self._units.values()):
                self._follow(unit)
            await asyncio.get_running_loop().create_future()

    def read_status(self, name: str) -> UnitStatus:
        unit = self._find(name)
        return unit.read_status() if unit else UnitStatus(name, False, ActiveState.INACTIVE, "dead")

    def read_statuses(self) -> list[UnitStatus]:
        return [unit.read_status() for unit in self._units.values()]

    def read_main_pids(self) -> set[int]:
        """Processes whose end their units await."""
        return {pid for unit in self._units.values() if (pid := unit.main_pid)}

    def read_pids(self, name: str) -> list[int]:
        unit = self._units.get(name)
        return sorted(unit.read_pids()) if unit else []

    def send_signal(self, name: str, number: int) -> None:
        if unit := self._units.get(name):
            unit.send_signal(number)

    def reset_failed(self, name: str) -> None:
        if unit := self._units.get(name):
            unit.reset_failed()

    def reload(self) -> None:
        """Read every file again; forget units whose file is gone and that are at rest."""
        self._read_files()
        for unit in list(self._units.values()):
            self._drop_if_gone(unit)

    async def carry_out(self, job: Coroutine[None, None, None]) -> None:
        """Do a `start`, `stop`, … to its end, even when whoever asked goes away. Raises what the job raises."""
        error = await asyncio.shield(self._own(job))
        if error is not None:
            raise error

    async def start(self, name: str) -> None:
        """Start a unit and what it pulls in, each after what it is ordered after.

        Raises: UnitJobFailed.
        """
        if self._is_closing:
            raise UnitJobFailed(f"{name} was not started: the supervisor is shutting down", code="shutting_down")
        unit = self._find(name)
        if unit is None or not unit.is_loaded:
            raise UnitJobFailed(f"there is no unit {name} in {self._site.units}", code="unit_not_found")
        names = order.pulled_in(name, self._specs())
        tasks = [self._queue_start(each) for each in names]
        await asyncio.wait(tasks)
        result = JobResult.CANCELED if tasks[0].cancelled() else tasks[0].result()
        if result is not JobResult.DONE:
            raise _job_failed(unit.read_status(), result, self._site.unit_log(name))

    async def stop(self, name: str) -> None:
        """Stop a unit, before it what cannot run without it. One that is down or unknown is fine."""
        levels = order.stop_levels(name, self._specs()) if name in self._units else []
        names = [each for level in levels for each in level]
        for each in names:
            self._stopping[each] = self._stopping.get(each, 0) + 1
            self._withdraw_start(each)
        try:
            for level in reversed(levels):
                await asyncio.gather(*(self._stop_one(each) for each in level))
        finally:
            for each in names:
                self._stopping[each] -= 1

    async def restart(self, name: str) -> None:
        """Stop, then start; and so what stopped with it. Raises: UnitJobFailed."""
        levels = order.stop_levels(name, self._specs())
        others = [each for level in levels[1:] for each in level if self._units[each].active_state in _UP]
        await self.stop(name)
        await self.start(name)
        for each in others:
            self._queue_start(each)

    async def shutdown(self) -> None:
        """Stop everything, side by side, and start nothing any more."""
        self._is_closing = True
        await asyncio.gather(*(self.stop(name) for name in list(self._units)))

    def _queue_start(self, name: str) -> asyncio.Task[JobResult]:
        """The start of one unit; whoever asks meanwhile shares it."""
        task = self._starting.get(name)
        if task is None or task.done():
            task = self._tasks.create_task(self._start_one(name))
            self._starting[name] = task
        return task

    async def _start_one(self, name: str) -> JobResult:
        unit, specs = self._units.get(name), self._specs()
        if unit is None:
            return JobResult.CANCELED
        if unit.active_state is not ActiveState.ACTIVE:
            before = [self._starting[other] for other in order.predecessors(name, specs) if other in self._starting]
            pending = [task for task in before if not task.done()]
            if pending:
                await asyncio.wait(pending)
            if lacking := self._find_lacking(name, specs):
                unit.refuse_start(JobResult.DEPENDENCY, f"needs {lacking}, which is not there")
                return JobResult.DEPENDENCY
        return await asyncio.shield(unit.order_start())

    def _find_lacking(self, name: str, specs: dict[str, EmbeddedUnit]) -> str:
        """Something that `name` cannot run without, and that does not exist or did not come up before it."""
        spec = specs[name]
        for other in sorted(spec.requires | spec.binds_to):
            unit = self._units.get(other)
            is_service = other.endswith(".service")  # devices and targets are systemd's matter
            if is_service and (unit is None or (other in spec.after and unit.active_state is not ActiveState.ACTIVE)):
                return other
        return ""

    def _withdraw_start(self, name: str) -> None:
        """Forget a start that was ordered before; at once, so that one that is ordered after this is another one."""
        starting = self._starting.pop(name, None)
        if starting is not None and self._units[name].jobs.start is None:
            starting.cancel()  # it still waits for its turn

    async def _stop_one(self, name: str) -> None:
        unit = self._units.get(name)
        if unit is None:
            return
        await asyncio.shield(unit.order_stop())

    def _changed(self, unit: Unit) -> None:
        """A unit has another state."""
        status = unit.read_status()
        for listener in list(self.listeners):
            listener(status)
        # Later: the unit is in the middle of its own change.
        loop = asyncio.get_running_loop()
        loop.call_soon(self._follow, unit)
        loop.call_soon(self._drop_if_gone, unit)

    def _follow(self, unit: Unit) -> None:
        """What one unit's state means for others: BindsTo= and Upholds=."""
        if self._is_closing:
            return
        specs = self._specs()
        if unit.active_state is ActiveState.ACTIVE:
            for name in sorted(unit.spec.upholds):
                self._uphold(name)
        elif unit.active_state is not ActiveState.ACTIVATING or unit.sub_state == AUTO_RESTART:
            for name in order.bound_to(unit.name, specs):
                if self._units[name].active_state in _UP:
                    self._own(self.stop(name))
        if unit.active_state in _DOWN and order.upholders_of(unit.name, specs):
            pause_s = max(_SHORTEST_PAUSE_S, unit.spec.restart_delay_s)
            asyncio.get_running_loop().call_later(pause_s, self._uphold_again, unit.name)

    def _uphold_again(self, name: str) -> None:
        """It went down a moment ago: does anybody still hold it up?"""
        upholders = (self._units.get(other) for other in order.upholders_of(name, self._specs()))
        if any(
            other and other.active_state is ActiveState.ACTIVE and not self._stopping.get(other.name)
            for other in upholders
        ):
            self._uphold(name)

    def _uphold(self, name: str) -> None:
        """Start it unless it is up; once it has hit its start limit, that is the end."""
        unit = self._units.get(name)
        if not self._is_closing and unit is not None and unit.is_at_rest and not unit.has_hit_limit:
            self._queue_start(name)

    def _own(self, work: Coroutine[None, None, None]) -> asyncio.Task[LlmgwError | None]:
        return self._tasks.create_task(self._guard(work))

    async def _guard(self, work: Coroutine[None, None, None]) -> LlmgwError | None:
        """The boundary of one job: its failure is its caller's, and never ends the supervisor."""
        try:
            await work
        except LlmgwError as error:
            return error
        except Exception as error:  # noqa: BLE001 - a server's boundary: one broken job must not end the others
            self._site.log.error("job_broke", error=repr(error))
            return BugError(f"the supervisor's job broke: {error!r}")
        return None

    def _read_files(self) -> None:
        present = self._catalog.read()
        self._known_specs = {}
        for name, entry in present.items():
            unit = self._find_or_make(name)
            unit.is_loaded, unit.problem = True, entry.problem
            if entry.spec is not None:
                unit.spec = entry.spec
        for name, unit in self._units.items():
            unit.is_loaded = name in present

    def _find(self, name: str) -> Unit | None:
        """A unit; one whose file appeared since the last reload is read now, as systemd does."""
        if name not in self._units and self._catalog.exists(name):
            self._read_files()
        return self._units.get(name)

    def _find_or_make(self, name: str) -> Unit:
        if name not in self._units:
            unit = Unit(name, self._site, self._changed)
            self._units[name] = unit
            self._known_specs = {}
            if self._is_running:
                self._begin(unit)
        return self._units[name]

    def _begin(self, unit: Unit) -> None:
        log = self._site.log.bind(unit=unit.name)
        self._actors[unit.name] = self._tasks.create_task(supervise("unit", unit.run, log, Backoff(0.5, 30.0)))

    def _drop_if_gone(self, unit: Unit) -> None:
        if unit.is_loaded or not unit.is_at_rest or self._units.get(unit.name) is not unit:
            return
        del self._units[unit.name]
        self._known_specs = {}
        self._actors.pop(unit.name).cancel()
        unit.forget()

    def _specs(self) -> dict[str, EmbeddedUnit]:
        """What the units declare of one another."""
        if not self._known_specs:
            self._known_specs = {name: unit.spec for name, unit in self._units.items()}
        return self._known_specs


def _job_failed(status: UnitStatus, result: JobResult, log: Path) -> UnitJobFailed:
    reason = f"{status.result}, status {status.exec_main_status}" if result is JobResult.FAILED else result
    text = f": {status.status_text}" if status.status_text else ""
    return UnitJobFailed(f"{status.name} did not start ({reason}){text}", hint=f"its own words are in {log}")
