"""One unit: what it is ordered to be, what it is, and the one task that takes it from life to life.

Orders only set facts (`is_wanted`, `_stop_asked`) and return a job's future; `run` is the only place that starts,
ends or forgets a life. So requests may come at any moment and in any number: equal ones join, the opposite one wins.
Every change of state is remembered on disk before it is announced (`memory.py`).
"""

import signal
import time
from collections.abc import Callable

from core.files import StorageError
from units.backend import ActiveState, UnitStatus
from units.embedded.jobs import Job, JobResult, Jobs, ended_job
from units.embedded.life import Life
from units.embedded.memory import UnitMemory, read_birth, read_memory, write_record
from units.embedded.news import Deadline, News
from units.embedded.parse import EmbeddedUnit
from units.embedded.restart import Result, is_restarted, judge_exit, may_start, recent_starts, restart_delay_s
from units.embedded.site import Site
from units.model import ServiceType

AUTO_RESTART = "auto-restart"

_INACTIVE = ActiveState.INACTIVE
_FAILED = ActiveState.FAILED


class Unit:
    """`run` is owned by the supervisor's task group; everything else may be called from any task of its loop."""

    def __init__(self, name: str, site: Site, on_change: Callable[["Unit"], None]) -> None:
        self.name = name
        self.spec = EmbeddedUnit(name, exec_start="")
        self.is_loaded = False
        self.problem = ""
        """Why the file on disk cannot be used; the unit goes on with what it had."""
        self.active_state = ActiveState.INACTIVE
        self.sub_state = "dead"
        self.is_wanted = False
        self.jobs = Jobs()
        self._result = Result.SUCCESS
        self._site = site
        self._on_change = on_change
        self._news = News()
        self._life: Life | None = None
        self._is_adopted = False
        self._must_take_up = False
        self._stop_asked = False
        self._starts_s: list[float] = []
        self._restarts = 0
        self._exec_main_status = 0
        self._status_text = ""
        self._invocation_id = ""
        self._can_remember = True
        self._log = site.log.bind(unit=name)

    @property
    def is_at_rest(self) -> bool:
        """No life under way and none to come."""
        return self._life is None and not self.is_wanted and self.active_state in (_INACTIVE, _FAILED)

    @property
    def has_hit_limit(self) -> bool:
        return self._result is Result.START_LIMIT_HIT

    @property
    def main_pid(self) -> int:
        """0 when there is no living main process."""
        return self._life.main.pid if self._life is not None and not self._life.main.is_over else 0

    def read_status(self) -> UnitStatus:
        life = self._life
        return UnitStatus(
            name=self.name,
            loaded=self.is_loaded and not self.problem,
            active_state=self.active_state,
            sub_state=self.sub_state,
            result=self._result,
            main_pid=self.main_pid,
            exec_main_status=self._exec_main_status,
            restarts=self._restarts,
            status_text=(life.status_text if life is not None else "") or self._status_text or self.problem,
            invocation_id=self._invocation_id,
        )

    def read_pids(self) -> set[int]:
        return self._life.read_pids() if self._life is not None else set()

    def send_signal(self, number: int) -> None:
        if self._life is not None:
            self._life.send_signal(number)

    def order_start(self) -> Job:
        """Want it up. The job ends at the first success or failure, as systemd's does."""
        if self.active_state is ActiveState.ACTIVE and not self._stop_asked:
            return ended_job(JobResult.DONE)
        if self.active_state in (_INACTIVE, _FAILED):
            self._restarts = 0
        self.is_wanted = True
        self._news.poke()
        return self.jobs.open_start()

    def order_stop(self) -> Job:
        """Want it down, with nothing left."""
        self.jobs.end_start(JobResult.CANCELED)
        if self._life is None and self.active_state in (_INACTIVE, _FAILED):
            self.is_wanted = False
            return ended_job(JobResult.DONE)
        self.is_wanted = False
        self._stop_asked = True
        self._news.poke()
        return self.jobs.open_stop()

    def refuse_start(self, result: JobResult, reason: str) -> None:
        """A start that never began: something that it needs is not there."""
        if self._life is None and self.active_state in (_INACTIVE, _FAILED):
            self.is_wanted = False
        self._status_text = reason
        self.jobs.end_start(result)

    def reset_failed(self) -> None:
        """Forget a failure and the count of starts."""
        self._starts_s = []
        self._restarts = 0
        if self.active_state is _FAILED:
            self._result = Result.SUCCESS
            self._status_text = ""
            self._set(_INACTIVE, "dead")
        else:
            self._remember()

    def adopt(self) -> None:
        """Take over what an earlier supervisor left, as of the moment it was killed. Before `run`."""
        memory = read_memory(self._site.memory(self.name), self._site.boot_id)
        birth = read_birth(self._site.birth(self.name), self._site.boot_id)
        if memory is not None:
            self.active_state, self.sub_state = memory.active_state, memory.sub_state
            self._result, self.is_wanted = memory.result, memory.is_wanted
            self._starts_s, self._restarts = list(memory.starts_s), memory.restarts
            self._exec_main_status, self._status_text = memory.exec_main_status, memory.status_text
            self._invocation_id = memory.invocation_id
        if birth is not None:
            self._adopt_life(Life.adopt(self.spec, self._site, self._news, birth))
        elif self.active_state is ActiveState.DEACTIVATING:
            self.active_state, self.sub_state = _INACTIVE, "dead"
        elif self.active_state is ActiveState.ACTIVE:
            self.active_state, self.sub_state = ActiveState.ACTIVATING, AUTO_RESTART

    def _adopt_life(self, life: Life) -> None:
        self._life, self._is_adopted = life, True
        self._invocation_id = life.invocation_id
        if self.active_state is ActiveState.DEACTIVATING or not self.is_wanted:
            self._stop_asked = True
        elif self.active_state is not ActiveState.ACTIVE:
            self.active_state, self.sub_state = ActiveState.ACTIVATING, "start"
        self._log.info("unit_adopted", pid=life.main.pid, state=self.active_state, alive=not life.main.is_over)

    async def run(self) -> None:
        """One life after another, for ever. Cancelled, it leaves the service alone.

        Should it break in the middle of a life (out of descriptors, say), running it again takes that life up again.
        """
        try:
            if self._must_take_up:
                self._must_take_up = False
                self.adopt()
            if self._life is not None:
                await self._live(self._life)
                await self._finish(self._life)
            elif self.sub_state == AUTO_RESTART:
                await self._wait_to_restart()
            while True:
                await self._news.until(lambda: self.is_wanted)
                await self._start()
        finally:
            if self._life is not None:
                self._life.release()
                self._life, self._must_take_up = None, True

    async def _start(self) -> None:
        """A life from its beginning."""
        self._is_adopted = False
        if not self._count_start():
            self._log.warning("unit_start_limit_hit", starts=self.spec.start_limit_burst)
            self._fail(Result.START_LIMIT_HIT, self._status_text)
            return
        if self.problem:
            self._fail(Result.RESOURCES, self.problem)
            return
        life = Life.begin(self.spec, self._site, self._news)
        self._life, self._result, self._status_text = life, Result.SUCCESS, ""
        self._invocation_id, self._exec_main_status = life.invocation_id, 0
        self._set(ActiveState.ACTIVATING, "start")
        if life.has_leftovers() and not await life.wind_down():
            self._life = None
            self._fail(Result.RESOURCES, "processes of an earlier life cannot be ended")
            return
        failure = life.launch()
        if failure is not None:
            self._result, self._exec_main_status, self._status_text = Result.EXIT_CODE, failure.status, failure.text
        else:
            if not life.limits_memory:
                self._log.warning("memory_limit_not_set", limit_bytes=self.spec.memory_max_bytes)
            await self._live(life)
        await self._finish(life)

    def _count_start(self) -> bool:
        """Whether the start limit allows one more; it is then counted."""
        spec, now_s = self.spec, time.monotonic()
        if not may_start(self._starts_s, now_s, burst=spec.start_limit_burst, interval_s=spec.start_limit_interval_s):
            return False
        self._starts_s = [*recent_starts(self._starts_s, now_s, spec.start_limit_interval_s), now_s]
        return True

    async def _live(self, life: Life) -> None:
        """Come up, then serve until the end: its own, an order to stop, or a deadline of ours."""
        if self.active_state is not ActiveState.ACTIVE:
            await self._come_up(life)
        while self.active_state is ActiveState.ACTIVE and not self._is_ending(life):
            await self._until(life, lambda: self._is_ending(life), life.watchdog_deadline)
            life.hear()
            if not self._is_ending(life) and time.monotonic() >= life.watchdog_deadline():
                await self._end_by_watchdog(life)

    async def _until(self, life: Life, is_so: Callable[[], bool], deadline: Deadline) -> bool:
        """As `News.until`; what the service says of itself meanwhile is passed on."""
        while True:
            result = await self._news.until(lambda: life.has_new_words or is_so(), deadline)
            if not life.has_new_words:
                return result
            life.has_new_words = False
            self._on_change(self)

    def _is_ending(self, life: Life) -> bool:
        return life.main.is_over or self._stop_asked

    async def _come_up(self, life: Life) -> None:
        """Until it is active: executed, and for `Type=notify` until it said so."""
        is_notify = self.spec.type is ServiceType.NOTIFY

        def is_decided() -> bool:
            is_up = life.has_executed and (life.is_ready or not is_notify)
            return is_up or life.failure is not None or self._is_ending(life)

        decided = await self._until(life, is_decided, lambda: life.start_deadline_s)
        life.hear()
        if life.failure is not None:
            self._exec_main_status, self._status_text = life.failure.status, life.failure.text
            self._result = Result.EXIT_CODE
        elif self._stop_asked:
            pass
        elif life.has_executed and (life.is_ready or not is_notify):
            self._set(ActiveState.ACTIVE, "running")
        elif life.main.is_over:
            self._result = Result.PROTOCOL  # unless its exit says worse
        elif not decided and self._is_adopted:
            # It may have said READY while nobody listened. It lives: rather believe it than kill it.
            self._status_text = "adopted; whether it is ready is not known"
            self._set(ActiveState.ACTIVE, "running")
        else:
            self._result = Result.TIMEOUT
            self._log.warning("unit_start_timed_out", timeout_s=self.spec.timeout_start_s)

    async def _end_by_watchdog(self, life: Life) -> None:
        """SIGABRT, so that it can leave a trace; what is left after TimeoutStopSec is killed."""
        self._result = Result.WATCHDOG
        self._log.warning("unit_watchdog_expired", watchdog_s=self.spec.watchdog_s)
        self._set(ActiveState.DEACTIVATING, "stop-watchdog")
        life.main.send_signal(signal.SIGABRT)
        deadline_s = time.monotonic() + self.spec.timeout_stop_s
        await self._news.until(lambda: self._is_ending(life), lambda: deadline_s)

    async def _finish(self, life: Life) -> None:
        """End what is left of a life, judge it, and decide what comes next."""
        if not life.main.is_over or life.read_pids():
            self._set(ActiveState.DEACTIVATING, "stop-sigterm")
        is_empty = await life.wind_down()
        if is_empty:
            await self._judge(life)
            life.close()
        else:
            self._result = Result.TIMEOUT
            self._status_text = f"cannot be killed: {sorted(life.read_pids())[:20]}"
            self._log.error("unit_cannot_be_killed", pids=sorted(life.read_pids())[:20])
            self.is_wanted = False
            life.release()
        self._life = None
        await self._decide()

    async def _judge(self, life: Life) -> None:
        """How the life ended, in one word."""
        await self._news.until(lambda: life.main.is_over)
        end = await life.main.read_exit()
        if life.failure is None and life.main.pid:
            self._exec_main_status = end.status
            verdict = judge_exit(end)
            if life.was_killed and self._result is Result.SUCCESS:
                verdict = Result.TIMEOUT
            if self._result is Result.SUCCESS or (self._result is Result.PROTOCOL and verdict is not Result.SUCCESS):
                self._result = verdict
        if self._result is Result.SIGNAL and life.was_out_of_memory():
            self._result = Result.OOM_KILL
        self._log.info(
            "unit_ended",
            pid=life.main.pid, result=self._result, status=self._exec_main_status, ordered=self._stop_asked,
            known=end.is_known,
        )  # fmt: skip

    async def _decide(self) -> None:
        """At rest, or back to life after a pause."""
        if self._stop_asked:
            self._stop_asked = False
            self._rest()
        elif self.is_wanted and is_restarted(self.spec.restart, self._result):
            self.jobs.end_start(JobResult.FAILED)
            await self._wait_to_restart()
        else:
            self.is_wanted = False
            self._rest()

    async def _wait_to_restart(self) -> None:
        spec = self.spec
        delay_s = restart_delay_s(spec.restart_delay_s, spec.restart_max_delay_s, spec.restart_steps, self._restarts)
        until_s = time.monotonic() + delay_s
        self._set(ActiveState.ACTIVATING, AUTO_RESTART)
        if await self._news.until(lambda: self._stop_asked, lambda: until_s):
            self._stop_asked = False
            self._set(_INACTIVE, "dead")
            self._end_jobs()
        else:
            self._restarts += 1
            self._log.info("unit_restarts", restarts=self._restarts, after=self._result)

    def _rest(self) -> None:
        """Down, well or not. A start that was ordered meanwhile stays ordered."""
        if self._result is Result.SUCCESS:
            self._set(_INACTIVE, "dead")
        else:
            self._set(_FAILED, "failed")
        self._end_jobs()

    def _fail(self, result: Result, reason: str) -> None:
        """A start that came to nothing."""
        self._result, self._status_text, self.is_wanted, self._stop_asked = result, reason, False, False
        self._set(_FAILED, "failed")
        self._end_jobs()

    def _end_jobs(self) -> None:
        self.jobs.end_stop()
        if not self.is_wanted:
            self.jobs.end_start(JobResult.FAILED)

    def _set(self, active_state: ActiveState, sub_state: str) -> None:
        """The one place where a state changes: remembered first, then told."""
        self.active_state, self.sub_state = active_state, sub_state
        self._remember()
        if active_state is ActiveState.ACTIVE:
            self.jobs.end_start(JobResult.DONE)
        self._on_change(self)

    def _remember(self) -> None:
        memory = UnitMemory(
            boot_id=self._site.boot_id,
            active_state=self.active_state,
            sub_state=self.sub_state,
            result=self._result,
            is_wanted=self.is_wanted,
            starts_s=self._starts_s,
            restarts=self._restarts,
            exec_main_status=self._exec_main_status,
            status_text=self._status_text,
            invocation_id=self._invocation_id,
        )
        try:
            write_record(self._site.memory(self.name), memory)
            self._can_remember = True
        except StorageError as error:
            # The unit runs on; only a supervisor that is killed now would know less of it.
            if self._can_remember:
                self._log.error("unit_state_not_saved", error=error.message, hint=error.hint)
            self._can_remember = False

    def forget(self) -> None:
        """Its file is gone and it is at rest: take its records away."""
        self._site.memory(self.name).unlink(missing_ok=True)
        self._site.birth(self.name).unlink(missing_ok=True)
