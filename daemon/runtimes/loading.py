"""From a unit's start to an engine that is ready for clients: health, its first request, proof of where it computes.

Here is only the wait, and the ways in which it can fail; the controller starts the unit and decides what a failure
means. One `Load` is one wait, under one deadline; the memory guard may end it earlier.
"""

import asyncio
import signal
from collections.abc import Callable
from dataclasses import dataclass, field

from core.errors import DependencyError, TimedOutError
from core.log import EventLogger
from core.runtime import RuntimeState
from daemon.runtimes.compute_proof import prove_compute
from daemon.runtimes.gpu_memory import Proof
from daemon.runtimes.health import Answer, Probe
from daemon.runtimes.surround import Surround
from daemon.runtimes.warmup import WarmupFailed, warm_up
from units.backend import ActiveState, UnitStatus
from units.model import UnitRecord

_PROBE_FIRST_S = 0.02
_PROBE_MAX_S = 1.0
_DOWN = frozenset({ActiveState.FAILED, ActiveState.INACTIVE})


class EngineExited(DependencyError):
    """The engine ended while it was loading."""

    code = "engine_exited"


class EngineFailed(DependencyError):
    """The engine answers, and says that it is broken."""

    code = "engine_unhealthy"


class StartTimedOut(TimedOutError):
    """The engine did not serve within its deadline."""

    code = "runtime_start_timed_out"


@dataclass(slots=True)
class UnitSight:
    """What the service manager said of one unit last, and a wait for its next word."""

    status: UnitStatus | None = None
    told: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by every unit event, so that a wait for health looks again at once."""

    def see(self, status: UnitStatus) -> None:
        """An event came."""
        self.status = status
        self.told.set()

    async def wait_told(self, within_s: float) -> bool:
        """Whether the unit changed within that time."""
        self.told.clear()
        try:
            async with asyncio.timeout(within_s):
                await self.told.wait()
        except TimeoutError:
            return False
        return True


@dataclass(frozen=True, slots=True)
class Load:
    """See the module."""

    runtime_id: str
    unit_name: str
    unit: UnitSight
    record: UnitRecord | None
    probe: Probe | None
    deadline_s: float
    restarts_allowed: bool
    """The service manager starts the engine again when it ends, so that an end is not the load's end."""
    shared: Surround
    log: EventLogger
    move: Callable[[RuntimeState, str], None]

    async def wait(self) -> str:
        """Until it serves; returns what it computes on, empty when that was not to be seen.

        Raises: EngineExited, EngineFailed, StartTimedOut, WarmupFailed, MemorySafetyAbort, ComputesElsewhere.
        """
        try:
            async with self.shared.guard.watching(self.runtime_id), asyncio.timeout(self.deadline_s):
                await self._wait_serving()
                while not await self._is_warm():
                    await self._wait_serving()
                return await self._prove_compute()
        except TimeoutError:
            raise StartTimedOut(
                f"runtime {self.runtime_id} did not serve within {self.deadline_s:g} s",
                hint=f"runtimes.{self.runtime_id}.startupTimeoutMs, or llmgw logs {self.runtime_id}",
            ) from None

    async def _wait_serving(self) -> None:
        pause_s = _PROBE_FIRST_S
        while True:
            await self._check_alive()
            if await self._serves():
                return
            if not await self.unit.wait_told(pause_s):
                pause_s = min(_PROBE_MAX_S, pause_s * 1.5)

    async def _is_warm(self) -> bool:
        """Ask the first request. False: the engine crashed over it, and the service manager starts it again."""
        call = self.shared.warmup(self.runtime_id)
        if call is None or self.probe is None:
            return True
        self.move(RuntimeState.WARMING, "answers its first request")
        self.unit.told.clear()
        try:
            await warm_up(call, self.probe, self.shared.http, self.deadline_s)
        except WarmupFailed:
            # An engine that died over it tells more by its end, which the manager reports a moment later.
            crashed = self.unit.told.is_set() or await self.unit.wait_told(_PROBE_MAX_S)
            await self._check_alive()
            if not (crashed and self.restarts_allowed):
                raise
            self.move(RuntimeState.STARTING, "the engine ended at its first request; it is started again")
            return False
        return True

    async def _prove_compute(self) -> str:
        if self.record is None:
            return ""
        found = await prove_compute(self.record, self.unit_name, self.shared.backend, self.shared.read_cards)
        if found.proof is Proof.PROVED:
            return found.text
        if self.record.devices:
            self.log.info("compute_unproved", because=found.text)
        return ""

    async def _serves(self) -> bool:
        if self.probe is None:
            return True
        answer = await self.probe.ask(self.shared.http)
        if answer is Answer.FAILED:
            raise EngineFailed(f"the engine of {self.runtime_id} answers that it is broken")
        return answer is Answer.READY

    async def _check_alive(self) -> None:
        """Raise when the unit's process has ended (for good, where restarts are allowed).

        An event may tell of the life before this one, so an end is believed only when the manager repeats it.
        """
        if self.unit.status is None or not _has_ended(self.unit.status, self.restarts_allowed):
            return
        status = self.unit.status = await self.shared.backend.read_status(self.unit_name)
        if _has_ended(status, self.restarts_allowed):
            raise EngineExited(
                f"the engine of {self.runtime_id} {end_of(status)}", hint=f"llmgw logs {self.runtime_id}"
            )


def _has_ended(status: UnitStatus, restarts_allowed: bool) -> bool:
    """For good, or in a way that another start would only repeat. One killed from outside may load again."""
    if status.active_state in _DOWN:
        return True
    was_killed = status.result == "signal" and status.exec_main_status == signal.SIGKILL
    return status.sub_state == "auto-restart" and not restarts_allowed and not was_killed


def end_of(status: UnitStatus) -> str:
    """How a unit's process ended, in an operator's words."""
    if status.result == "exit-code":
        return f"exited with status {status.exec_main_status}"
    if status.result == "signal":
        return f"was ended by signal {status.exec_main_status}"
    if status.result == "success":
        return "exited"
    return f"ended: {status.result}"
