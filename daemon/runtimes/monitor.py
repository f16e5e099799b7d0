"""Watches all running engines: whether they move, and how much memory they take. One loop for all of them.

The loop itself waits for no engine: it decides by what is known (`watchdog.py`), and starts looks that end by their
own deadlines, at most one for each engine. An engine is looked at only while it has requests and sends nothing, and
never more often than every `LOOK_EVERY_S`: llama.cpp does not notice that a client left when it is asked too often.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field

from core.clock import Clock
from core.config.schema import Config, Runtime
from core.config.schema import Watchdog as WatchdogConfig
from core.errors import LlmgwError
from core.hardware import Card
from core.http.client import HttpClient
from core.log import EventLogger
from core.runtime import RuntimeState
from daemon.activity import Activity, Load
from daemon.runtimes.authority import Action, Caller, Who, may
from daemon.runtimes.controller import RuntimeController
from daemon.runtimes.estimates import Estimates
from daemon.runtimes.gauge import Look, look_at
from daemon.runtimes.gpu_memory import held_mib
from daemon.runtimes.processes import read_resident_mib
from daemon.runtimes.watchdog import Limits, Sample, Verdict, Watched, judge, owes
from units.backend import UnitBackend

TICK_S = 1.0
LOOK_EVERY_S = 3.0
_LOOK_AT_OWN_WORK_S = 1.0
"""Engines that work on after they answered are looked at always, through their gates, which do not mind."""
_QUIET_S = 2.0
"""Without a byte for so long, the engine's own counters are asked."""
_CPU_AGE_S = 12.0
_MEASURE_S = 10.0
_MEASURE_IDLE_S = 60.0
"""An engine that did nothing since it was measured has hardly grown."""
_MEASURE_STEP_MIB = 16


@dataclass(frozen=True, slots=True)
class Surveyed:
    """What the monitor needs of the node."""

    controllers: Mapping[str, RuntimeController]
    config: Callable[[], Config]
    this_node: Callable[[], str]
    activity: Activity
    estimates: Estimates
    backend: UnitBackend
    http: HttpClient
    clock: Clock
    log: EventLogger
    restart: Callable[[str, str], None]
    """Runtime and reason."""
    read_cards: Callable[[], Sequence[Card]] = tuple


@dataclass(slots=True)
class _Case:
    """One running engine."""

    began_s: float
    """When this life of it began to serve."""
    watched: Watched = field(default_factory=Watched)
    quiet_since_s: float = 0.0
    bytes_total: int = 0
    look: Look | None = None
    cores: float | None = None
    is_looking: bool = False
    is_measuring: bool = False
    measured_s: float = float("-inf")
    measured_bytes: int = -1
    told: bool = False


class Monitor:
    """See the module."""

    def __init__(self, node: Surveyed) -> None:
        self._node = node
        self._cases: dict[str, _Case] = {}
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            while True:
                self.tick()
                await asyncio.sleep(TICK_S)

    def tick(self) -> None:
        """One round over all runtimes."""
        config, now_s = self._node.config(), self._node.clock.monotonic_s()
        for runtime_id, controller in self._node.controllers.items():
            runtime = config.runtimes.get(runtime_id)
            if runtime is not None and controller.state is RuntimeState.RUNNING and controller.probe is not None:
                self._examine(controller, runtime, now_s)
            elif runtime is not None and controller.state is RuntimeState.DRAINING and _works_on(controller):
                self._begin_looks(controller, self._case(controller), now_s)
        for runtime_id in self._cases.keys() - self._node.controllers.keys():
            del self._cases[runtime_id]

    def _examine(self, controller: RuntimeController, runtime: Runtime, now_s: float) -> None:
        case = self._case(controller)
        load = self._node.activity.load(controller.runtime_id, now_s)
        if load.bytes_total != case.bytes_total or not load.active:
            case.bytes_total, case.quiet_since_s = load.bytes_total, now_s
        self._begin_looks(controller, case, now_s)
        if runtime.watchdog.enabled and self._is_ours(controller):
            self._watch(controller, case, runtime, load, now_s)
        else:
            case.watched = Watched()
            controller.readmit()

    def _case(self, controller: RuntimeController) -> _Case:
        """The engine's case; a new life begins a new one, and keeps what the watchdog did before."""
        case = self._cases.get(controller.runtime_id)
        if case is None or case.began_s != controller.since_s:
            watched = case.watched.anew() if case is not None else Watched()
            case = self._cases[controller.runtime_id] = _Case(controller.since_s, watched)
            case.quiet_since_s = self._node.clock.monotonic_s()
        return case

    def _is_ours(self, controller: RuntimeController) -> bool:
        """Delegated runtimes are left to their owner, who has a watchdog too."""
        if controller.record is None:
            return False
        here = self._node.this_node()
        return may(Caller(Who.WATCHDOG, here), Action.RESTART, controller.record.authority, this_node=here)

    # Progress

    def _watch(self, controller: RuntimeController, case: _Case, runtime: Runtime, load: Load, now_s: float) -> None:
        case.watched, verdict = judge(
            case.watched, _sample(controller, case, runtime, load, now_s), _limits(runtime.watchdog)
        )
        observe = runtime.watchdog.action == "observe"
        if verdict in (Verdict.MOVES, Verdict.GIVEN_UP):
            case.told = False
            if controller.readmit():
                self._node.log.info("watchdog_readmitted", runtime=controller.runtime_id, because=verdict)
            return
        reason = f"it has moved nothing for {case.watched.still_s:.0f} s of work"
        if observe:
            self._tell_once(controller, case, "watchdog_observed", reason)
        elif verdict is Verdict.DEAD:
            self._node.log.warning("watchdog_restarts", runtime=controller.runtime_id, reason=reason)
            case.watched = case.watched.restarted(now_s)
            self._node.restart(controller.runtime_id, reason)
        elif not controller.ejected:
            self._tell_once(controller, case, "watchdog_ejected", reason)
            controller.eject(f"it has requests and moves nothing for {case.watched.still_s:.0f} s")

    def _tell_once(self, controller: RuntimeController, case: _Case, event: str, reason: str) -> None:
        if not case.told:
            self._node.log.warning(event, runtime=controller.runtime_id, reason=reason)
        case.told = True

    # Looks

    def _begin_looks(self, controller: RuntimeController, case: _Case, now_s: float) -> None:
        is_quiet = now_s - case.quiet_since_s >= _QUIET_S
        works_on = _works_on(controller)
        every_s = _LOOK_AT_OWN_WORK_S if works_on else LOOK_EVERY_S
        is_due = case.look is None or now_s - case.look.at_s >= every_s
        if (is_quiet or works_on) and is_due and not case.is_looking:
            case.is_looking = True
            self._spawn(self._look(controller, case, now_s))
        has_worked = case.bytes_total != case.measured_bytes
        if not case.is_measuring and now_s - case.measured_s >= (_MEASURE_S if has_worked else _MEASURE_IDLE_S):
            case.is_measuring, case.measured_s, case.measured_bytes = True, now_s, case.bytes_total
            self._spawn(self._measure(controller, case))

    async def _look(self, controller: RuntimeController, case: _Case, now_s: float) -> None:
        try:
            if controller.probe is not None:
                look = await look_at(controller.probe, controller.unit_name, self._node.http, self._node.backend, now_s)
                case.look, case.cores = look, look.cores_since(case.look)
                if _works_on(controller) and look.own is not None:
                    self._node.activity.note_own(controller.runtime_id, look.own, self._node.clock.monotonic_s())
        finally:
            case.is_looking = False

    async def _measure(self, controller: RuntimeController, case: _Case) -> None:
        """Remember what it holds, for the next admission."""
        record = controller.record
        try:
            pids = await self._node.backend.read_pids(controller.unit_name)
        except LlmgwError:
            return
        finally:
            case.is_measuring = False
        size_mib = read_resident_mib(pids)
        if size_mib is None or record is None or controller.state is not RuntimeState.RUNNING:
            return
        controller.note_pids(pids)
        # In steps, or an engine that grows byte by byte would have its estimate written down all the time.
        stepped_mib = -(-size_mib // _MEASURE_STEP_MIB) * _MEASURE_STEP_MIB
        gpu_mib = held_mib(self._node.read_cards(), pids)
        self._node.estimates.learn(controller.runtime_id, record.spec_hash, stepped_mib, gpu_mib)

    def _spawn(self, job: Coroutine[None, None, None]) -> None:
        if self._group is None:
            job.close()
            return
        self._group.create_task(self._guarded(job))

    async def _guarded(self, job: Coroutine[None, None, None]) -> None:
        try:
            await job
        except Exception as error:  # noqa: BLE001 - the boundary of one look: it must end neither the loop nor the others
            self._node.log.error("look_broke", error=repr(error))


def _works_on(controller: RuntimeController) -> bool:
    """Whether its engine works on after it answered a request."""
    return controller.probe is not None and controller.probe.adapter.works_on


def _sample(controller: RuntimeController, case: _Case, runtime: Runtime, load: Load, now_s: float) -> Sample:
    look, record, probe = case.look, controller.record, controller.probe
    on_gpu = bool(record and record.devices)
    has_cpu = look is not None and now_s - look.at_s <= _CPU_AGE_S and not on_gpu
    return Sample(
        at_s=now_s,
        owes=owes(
            active=load.active,
            held_back=load.held_back,
            stalled_s=load.stalled_s,
            slots=runtime.max_concurrency,
            has_counters=probe is not None and probe.adapter.metrics_path is not None,
        ),
        bytes_total=load.bytes_total,
        steps=look.steps if look is not None else None,
        cpu_cores=case.cores if has_cpu else None,
    )


def _limits(config: WatchdogConfig) -> Limits:
    return Limits(
        eject_after_s=config.eject_after_ms / 1000,
        restart_after_s=config.min_no_progress_ms / 1000,
        failure_threshold=config.failure_threshold,
        failure_window_s=config.failure_window_ms / 1000,
        cooldown_s=config.cooldown_ms / 1000,
    )
