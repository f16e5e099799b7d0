"""One runtime's life on this node: its state, and the one job that changes it.

The controller carries out a start or a stop through the service manager, and follows what the unit does by
itself: a crash and its restart, the start limit, a stop by `systemctl`. It never decides whether the runtime
should run; `daemon/reconcile.py` does. All changes of state go through `_move`.
"""

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from datetime import UTC, datetime

from core.errors import BugError, DependencyError, LlmgwError
from core.runtime import Authority, AuthorityScope, RuntimeState, check_transition
from daemon.runtimes.compute_proof import ComputesElsewhere
from daemon.runtimes.crash_loop import Crashes
from daemon.runtimes.health import Answer, Probe
from daemon.runtimes.loading import EngineExited, Load, StartTimedOut, UnitSight, end_of
from daemon.runtimes.memory_guard import MemorySafetyAbort
from daemon.runtimes.prepare import Prepared
from daemon.runtimes.release import NotReleased, wait_cards_free, wait_unit_empty
from daemon.runtimes.surround import Surround
from units.backend import ActiveState, UnitStatus
from units.model import Failure, UnitRecord
from units.names import gate_unit_name

_LOG_LINES = 20
_DISK_RETRY_S = 15.0
_LASTING = frozenset({MemorySafetyAbort.code, ComputesElsewhere.code})


class GateFailed(DependencyError):
    """The engine's gate does not run, and without it nobody may ask the engine."""

    code = "gate_failed"


class RuntimeController:
    """See the module. Not thread-safe; lives on the daemon's loop."""

    def __init__(self, runtime_id: str, unit_name: str, shared: Surround) -> None:
        self.runtime_id = runtime_id
        self.unit_name = unit_name
        self.gate_name = gate_unit_name(runtime_id)
        """Of its gate's unit, where its engine has one."""
        self.state = RuntimeState.STOPPED
        self.reason = ""
        self.since = _now()
        self.since_s = shared.clock.monotonic_s()
        """The same on the monotonic clock."""
        self.record: UnitRecord | None = None
        """Of the unit file on disk; None: there is none."""
        self.probe: Probe | None = None
        self.error: LlmgwError | None = None
        self.given_up: Failure | None = None
        """Why it was started and does not run, for the unit file to remember."""
        self.last_log: list[str] = []
        self.attempted_hash = ""
        self.deadline_s = 0.0
        self.restart_requested = False
        self.restart_reason = ""
        """Why, when it was not an operator who asked."""
        self.ejected = ""
        """Why it is out of rotation though it runs; empty: it is not."""
        self.computes_on = ""
        """Its cards, with what it holds of each, once that was seen."""
        self._last_pids: frozenset[int] = frozenset()
        """The processes of the last life, when they were last looked at, and the cards that they had."""
        self._last_devices: tuple[str, ...] = ()
        self._failed_s = 0.0
        self._crashes = Crashes()
        self._shared = shared
        self._log = shared.log.bind(runtime=runtime_id)
        self._job: asyncio.Task[None] | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._unit = UnitSight()

    # What others ask

    @property
    def ports(self) -> tuple[int, ...]:
        """All that are taken for it; the first is where requests go."""
        return self.record.ports if self.record else ()

    @property
    def port(self) -> int:
        return self.record.ports[0] if self.record and self.record.ports else 0

    @property
    def status(self) -> UnitStatus | None:
        """What the service manager said of its unit last; None: nothing in this life."""
        return self._unit.status

    async def wait_until(self, done: Callable[["RuntimeController"], bool]) -> None:
        """Return once `done(self)` holds; it is asked again after every change and every pass."""
        while not done(self):
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    def look_again(self) -> None:
        """What is wanted of it may have changed: whoever waits for it asks again."""
        self._wake_waiters()

    # What the applier orders

    def begin_start(self, prepared: Prepared) -> None:
        """The unit file is written; start it and wait until it serves."""
        self.record, self.probe, self.deadline_s = prepared.record, prepared.probe, prepared.deadline_s
        self._unit.status, self.error, self.last_log = None, None, []
        self.attempted_hash, self.restart_requested, self.restart_reason = prepared.record.spec_hash, False, ""
        self.given_up = None
        self._move(RuntimeState.STARTING, "loading")
        self._run(self._start())

    def begin_stop(self, reason: str, drain_s: float) -> None:
        """Stop the unit, whatever else is going on; requests under way get `drain_s` to end."""
        self._cancel_job()
        if self.state is RuntimeState.QUEUED:
            self._move(RuntimeState.STOPPED, reason)
            return
        # What an ejected one has under way does not move, and it has had its time.
        if self.state is RuntimeState.RUNNING and drain_s > 0 and not self.ejected:
            self._move(RuntimeState.DRAINING, reason)
        else:
            self._move(RuntimeState.STOPPING, reason)
            drain_s = 0.0
        self._run(self._stop(reason, drain_s))

    def queue(self, reason: str) -> None:
        """It waits for room."""
        self._move(RuntimeState.QUEUED, reason)

    def refuse(self, error: LlmgwError) -> None:
        """There is no room for it, and nobody waits for any."""
        self.error = error
        self.restart_requested = False
        self._move(RuntimeState.STOPPED, error.message)
        self._wake_waiters()  # also when it was stopped before: somebody may wait for this very answer

    @property
    def needs_operator(self) -> bool:
        """It failed in a way that the next try by a client's request would only repeat, at the machine's cost."""
        is_lasting = self.error is not None and self.error.code in _LASTING
        return self.state is RuntimeState.FAILED and is_lasting

    @property
    def may_try_again(self) -> bool:
        """It failed of a full disk a while ago: that passes, and nobody tells us when."""
        is_full = self.state is RuntimeState.FAILED and self.error is not None and self.error.code == "disk_full"
        return is_full and self._shared.clock.monotonic_s() - self._failed_s >= _DISK_RETRY_S

    @property
    def queued_s(self) -> float:
        """How long it has waited for room."""
        return self._shared.clock.monotonic_s() - self.since_s if self.state is RuntimeState.QUEUED else 0.0

    def eject(self, reason: str) -> None:
        """Out of rotation: no new requests until `readmit`."""
        self.ejected = reason
        self._announce()

    def readmit(self) -> bool:
        """Back into rotation; whether it was out."""
        was_out, self.ejected = bool(self.ejected), ""
        if was_out:
            self._announce()
        return was_out

    def note_pids(self, pids: Iterable[int]) -> None:
        """These are its processes now."""
        self._last_pids = frozenset(pids)
        self._last_devices = self.record.devices if self.record is not None else ()

    def fail(self, error: LlmgwError, attempted_hash: str) -> None:
        """It could not even be prepared."""
        self.attempted_hash, self.restart_requested = attempted_hash, False
        self._fail(error)
        self._wake_waiters()  # also when it had failed before

    def unit_rewritten(self, change: Callable[[UnitRecord], UnitRecord]) -> None:
        """Its file was changed so on disk."""
        if self.record is not None:
            self.record = change(self.record)
            self.given_up = self.record.failure

    def use_node(self, node: str) -> None:
        """This machine is called so from now on; what is local belongs to it under any name."""
        if self.record is not None and self.record.authority.scope is AuthorityScope.LOCAL:
            self.record = replace(self.record, authority=Authority(owner=node))

    def unit_removed(self) -> None:
        """Its file is gone from disk."""
        self.record = None
        self._announce()

    async def adopt(self, record: UnitRecord, probe: Probe | None, status: UnitStatus, *, deadline_s: float) -> None:
        """Take over a unit that was there before this daemon: the first state is what is seen, not a change."""
        self.record, self.probe, self._unit.status, self.attempted_hash = record, probe, status, record.spec_hash
        self.deadline_s = deadline_s
        is_down = status.active_state in (ActiveState.FAILED, ActiveState.INACTIVE)
        if is_down and record.failure is not None and not record.hold:
            await self._recall(record.failure)
        elif status.active_state is ActiveState.FAILED:
            self.state, self.reason = RuntimeState.FAILED, end_of(status)
            self.last_log = await self._read_log()
        elif status.active_state is ActiveState.INACTIVE:
            self.state, self.reason = RuntimeState.STOPPED, "stopped by an operator" if record.hold else ""
        elif probe is None:
            self.state, self.reason = RuntimeState.RUNNING, "adopted"
        else:
            answer = await probe.ask(self._shared.http)
            # Silent means busy: an engine that was running keeps its place until it is seen to fail.
            if status.active_state is ActiveState.ACTIVE and answer in (Answer.READY, Answer.SILENT):
                self.state, self.reason = RuntimeState.RUNNING, "adopted"
            else:
                self.state, self.reason = RuntimeState.STARTING, "adopted while loading"
                self._run(self._recover())
        self._log.info("runtime_adopted", state=self.state, pid=status.main_pid, port=self.port)

    async def _recall(self, failure: Failure) -> None:
        """An earlier daemon gave it up; so do we."""
        self.given_up = failure
        hint = f"llmgw runtime-start {self.runtime_id}"
        self.error = DependencyError(failure.message, hint=hint, code=failure.code)
        self.state, self.reason = RuntimeState.FAILED, failure.message
        self.last_log = await self._read_log()

    def on_unit(self, status: UnitStatus) -> None:
        """The service manager reported a change."""
        before = self._unit.status
        self._unit.see(status)
        if self.state is RuntimeState.RUNNING and (
            status.active_state is not ActiveState.ACTIVE
            or (before is not None and before.invocation_id != status.invocation_id)
        ):
            self._run(self._examine())
        self._announce()

    def on_gate(self, status: UnitStatus) -> None:
        """The service manager reported a change of its gate, which it starts again by itself until that is no use."""
        is_up = self.state in (RuntimeState.STARTING, RuntimeState.WARMING, RuntimeState.RUNNING)
        if status.active_state is ActiveState.FAILED and is_up:
            self._run(self._give_up_gate(status))

    # Jobs

    async def _give_up_gate(self, status: UnitStatus) -> None:
        lines = await self._read_log(self.gate_name)
        await self._give_up(
            GateFailed(f"the gate of {self.runtime_id} {end_of(status)}", hint=f"journalctl -u {self.gate_name}")
        )
        self.last_log = lines

    async def _start(self) -> None:
        try:
            await self._begin_life()
            await self._load(restarts_allowed=False)
        except LlmgwError as error:
            await self._give_up(error)
        else:
            self._move(RuntimeState.RUNNING, "")

    async def _begin_life(self) -> None:
        """Start the unit once nothing of the life before is left."""
        backend = self._shared.backend
        if await backend.read_pids(self.unit_name):
            status = await backend.read_status(self.unit_name)
            if status.active_state not in (ActiveState.FAILED, ActiveState.INACTIVE):
                # Nobody could read its unit file, so it was not adopted; two lives cannot share one unit.
                self._log.warning("unknown_life_stopped", pid=status.main_pid)
                await backend.stop(self.unit_name)
            await wait_unit_empty(self.unit_name, self.runtime_id, backend)
        await wait_cards_free(self.runtime_id, self._last_devices, self._last_pids, self._shared.read_cards)
        await backend.reset_failed(self.unit_name)
        if self.probe is not None and self.probe.adapter.gate is not None:
            await backend.reset_failed(self.gate_name)
        await backend.start(self.unit_name)

    async def _recover(self) -> None:
        """The service manager restarts a crashed engine; wait until it serves again or is given up."""
        while True:
            try:
                await self._load(restarts_allowed=True)
            except LlmgwError as error:
                if self._is_ours or not isinstance(error, StartTimedOut):
                    await self._give_up(error)
                    return
                reason = f"{error.message}; {self._owner} decides what becomes of it"
                if reason != self.reason:  # told once, however often its time passes
                    self._log.warning("member_left_to_owner", owner=self._owner, error=error.message)
                self._move(self.state, reason)
            else:
                self._move(RuntimeState.RUNNING, "")
                return

    async def _stop(self, reason: str, drain_s: float) -> None:
        if drain_s > 0:
            try:
                async with asyncio.timeout(drain_s):
                    await self._shared.wait_silent(self.runtime_id)
            except TimeoutError:
                self._log.warning("drain_timed_out", after_s=drain_s)
            self._move(RuntimeState.STOPPING, reason)
        try:
            await self._look_at_pids()
            await self._shared.backend.stop(self.unit_name)
        except LlmgwError as error:
            self._fail(error)
            return
        try:
            # Stopped means that its memory is free again: admission counts on it.
            await wait_cards_free(self.runtime_id, self._last_devices, self._last_pids, self._shared.read_cards)
        except NotReleased as error:
            self._log.warning("cards_not_released", error=error.message)
            reason = f"{reason}; {error.message}"
        self._move(RuntimeState.STOPPED, reason)

    async def _look_at_pids(self) -> None:
        """Only for a runtime with cards: whose memory to wait for when it has ended."""
        if self.record is not None and self.record.devices:
            self.note_pids(await self._shared.backend.read_pids(self.unit_name))

    async def _give_up(self, error: LlmgwError) -> None:
        self.last_log = await self._read_log()
        try:
            await self._look_at_pids()
            if isinstance(error, MemorySafetyAbort):
                await self._shared.backend.kill(self.unit_name, signal.SIGKILL)  # no time for an orderly end
            if self._is_ours or isinstance(error, MemorySafetyAbort):
                await self._shared.backend.stop(self.unit_name)
        except LlmgwError as second:
            self._log.error("unit_not_stopped", code=second.code, error=second.message)
        self.given_up = Failure.of(error.code, error.message)
        self._fail(error)

    async def _load(self, *, restarts_allowed: bool) -> None:
        """From the unit's start to an engine that is ready for clients."""
        load = Load(
            runtime_id=self.runtime_id,
            unit_name=self.unit_name,
            unit=self._unit,
            record=self.record,
            probe=self.probe,
            deadline_s=self.deadline_s,
            restarts_allowed=restarts_allowed,
            shared=self._shared,
            log=self._log,
            move=self._move,
        )
        self.computes_on = await load.wait() or self.computes_on

    async def _examine(self) -> None:
        """A running unit changed by itself: look what became of it."""
        status = self._unit.status = await self._shared.backend.read_status(self.unit_name)
        if status.active_state is ActiveState.FAILED:
            await self._give_up(EngineExited(f"the engine of {self.runtime_id} {end_of(status)}"))
        elif status.active_state is ActiveState.INACTIVE:
            self._move(RuntimeState.STOPPED, "its unit was stopped outside llmgw")
            if self._is_ours:
                self._shared.stopped_outside(self.runtime_id)
        elif not self._is_ours:
            again = f"its unit starts it again, and {self._owner} decides the rest"
            self._move(RuntimeState.STARTING, f"the engine {end_of(status)}; {again}")
            await self._recover()
        else:
            await self._come_back(f"the engine {end_of(status)}")

    async def _come_back(self, what: str) -> None:
        """The engine crashed. The first time the service manager alone brings it back; then we slow it down."""
        self._crashes = self._crashes.add(self._shared.clock.monotonic_s())
        if self._crashes.is_loop:
            count = len(self._crashes.at_s)
            await self._give_up(EngineExited(f"the engine of {self.runtime_id} crashed {count} times in 10 minutes"))
            return
        pause_s = self._crashes.pause_s
        again = f"it is started again in {pause_s:g} s" if pause_s else "it is started again"
        self._move(RuntimeState.STARTING, f"{what}; {again}")
        if pause_s:
            await self._shared.backend.stop(self.unit_name)
            await asyncio.sleep(pause_s)
            self._unit.status = None
            await self._begin_life()
        await self._recover()

    # Small things

    @property
    def _is_ours(self) -> bool:
        """Whether this node decides what follows when it fails."""
        return self.record is None or self._shared.is_ours(self.record.authority)

    @property
    def _owner(self) -> str:
        return self.record.authority.owner if self.record is not None else ""

    def _run(self, job: Coroutine[None, None, None]) -> None:
        self._cancel_job()
        self._job = self._shared.spawn(self._guarded(job))

    async def _guarded(self, job: Coroutine[None, None, None]) -> None:
        """One runtime's bug or a lost service manager must end neither the daemon nor the other runtimes."""
        try:
            await job
        except LlmgwError as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001 - the boundary of one job
            self._log.error("runtime_job_broke", error=repr(error))
            self._fail(BugError(f"runtime {self.runtime_id}: {error!r}"))

    def _cancel_job(self) -> None:
        if self._job is not None and self._job is not asyncio.current_task():
            self._job.cancel()
        self._job = None

    def _fail(self, error: LlmgwError) -> None:
        if self.state is not RuntimeState.FAILED or self.reason != error.message:
            self._log.warning("runtime_failed", code=error.code, error=error.message)
        self.error, self._failed_s = error, self._shared.clock.monotonic_s()
        self._move(RuntimeState.FAILED, error.message)
        self._wake_waiters()  # also when it had failed before: somebody may wait for this very answer

    def _move(self, state: RuntimeState, reason: str) -> None:
        if state is self.state:
            # A reason alone wakes nobody: a refusal's numbers change with every look at the memory.
            self.reason = reason
            return
        check_transition(self.state, state)
        self._log.info("runtime_state", state=state, before=self.state, reason=reason)
        self.since, self.since_s = _now(), self._shared.clock.monotonic_s()
        self.state, self.reason, self.ejected = state, reason, ""
        if state is RuntimeState.STARTING:
            self.computes_on = ""
        self._announce()

    def _announce(self) -> None:
        self._wake_waiters()
        self._shared.changed()

    def _wake_waiters(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _read_log(self, unit_name: str = "") -> list[str]:
        try:
            return await self._shared.backend.read_log(unit_name or self.unit_name, _LOG_LINES)
        except LlmgwError:
            return []  # the failure itself is told; its log is an extra


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def is_settled(controller: RuntimeController) -> bool:
    """Whether nothing is under way: running, stopped or failed."""
    return controller.state in (RuntimeState.RUNNING, RuntimeState.STOPPED, RuntimeState.FAILED)
