"""Works on jobs: claims those that may begin, asks for them, and writes down what came of it.

Every worker of the gateway has one. Who posts a job wakes the runner of the same worker; the others look every two
seconds, for jobs that were left over and for colleagues that died. While something runs, four looks a second see
jobs that were cancelled through another worker.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from core.errors import LlmgwError
from core.http.asgi import AsgiApp, Headers
from core.log import EventLogger
from core.tasks import Backoff, supervise
from gateway.auth import CredentialDigest
from gateway.jobs.crew import Crew
from gateway.jobs.database import JobDatabase
from gateway.jobs.inner import ResultTooLarge, ask
from gateway.jobs.job import Job, JobError, Stage
from gateway.jobs.limits import MAX_RESULT_BYTES, MAX_RUNNING, JobLimits, limits_of
from gateway.jobs.outcome import Again, Answer, Done, judge
from gateway.jobs.store import JobStore
from gateway.jobs.ticket import Ticket
from gateway.state import Routes, RouteState

Change = Callable[[JobDatabase], None]

BUSY_S = 0.25
IDLE_S = 2.0
_EXPIRE_S = 30.0

_TOO_LARGE = JobError("job_result_too_large", "The result is larger than a job's result may be.", status=502)
_NOT_KEPT = JobError("job_result_not_kept", "There was no room to keep the result.", status=503)
_BROKE = JobError("internal_error", "The gateway could not process this request.", status=500)


@dataclass(slots=True)
class Work:
    """One job under way here."""

    job: Job
    ticket: Ticket
    task: asyncio.Task[None] | None = None
    noted: Stage = Stage()
    """What is written of it."""

    def stage(self, node: str) -> Stage:
        """What is known of it now."""
        ticket, target = self.ticket, self.ticket.target
        return Stage(node, target, ticket.step, ticket.percent, ticket.started_s) if target else Stage()


class Runner:
    """See the module."""

    def __init__(self, app: AsgiApp, store: JobStore, state: RouteState, log: EventLogger) -> None:
        self._app = app
        self._store = store
        self._state = state
        self._log = log
        self._crew = Crew(store.directory)
        self._wake = asyncio.Event()
        self._works: dict[int, Work] = {}
        self._looked_s = 0.0
        self._expired_s = 0.0

    def wake(self) -> None:
        """Something changed: a job is new, or was cancelled."""
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled. Raises: LlmgwError when the jobs cannot be read; what runs goes on."""
        pause_s = IDLE_S
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._wake.wait()
            self._wake.clear()
            pause_s = await self._look() if self._store.exists else IDLE_S

    async def close(self) -> None:
        """Give everything back: it is begun again by those who go on."""
        works = list(self._works.values())
        try:
            if works:
                await self._store.run(lambda db: db.mark_stopping(self._crew.name))
            tasks = [work.task for work in works if work.task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if works:
                await self._store.run(lambda db: db.requeue_all(self._crew.name))
        except LlmgwError as error:
            # Whoever comes next finds the lock free, and does it.
            self._log.warning("jobs_not_given_back", code=error.code)
        self._crew.leave()
        await self._store.close()

    async def _look(self) -> float:
        """One look at everything; seconds until the next."""
        now_s = time.time()
        routes = self._state.routes
        if routes is None:
            return IDLE_S
        limits = limits_of(routes.lookup.table.jobs)
        if abs(now_s - self._looked_s) >= IDLE_S:
            self._looked_s = now_s
            await self._bury_the_dead(now_s)
        if abs(now_s - self._expired_s) >= _EXPIRE_S:
            self._expired_s = now_s
            self._crew.sweep()
            await self._store.run(lambda db: db.expire(now_s, limits))
        if self._works:
            await self._follow(routes)
        await self._claim(routes, limits)
        due_s = await self._store.run(JobDatabase.next_due_s)
        longest_s = BUSY_S if self._works else IDLE_S
        return longest_s if due_s is None else min(max(due_s - time.time(), BUSY_S), longest_s)

    async def _bury_the_dead(self, now_s: float) -> None:
        for worker in await self._store.run(JobDatabase.list_workers):
            if self._crew.is_dead(worker):
                failed = await self._store.run(partial(JobDatabase.bury, worker=worker, now_s=now_s))
                self._log.warning("jobs_interrupted", worker=worker, failed=failed)

    async def _follow(self, routes: Routes) -> None:
        """End what was cancelled, and write down who works on what, and how far it is."""
        mine = await self._store.run(lambda db: db.list_mine(self._crew.name))
        for seq, work in list(self._works.items()):
            if seq not in mine:
                if work.task is not None:
                    work.task.cancel()
                continue
            stage = work.stage(routes.lookup.table.node)
            if stage != work.noted:
                work.noted = stage
                await self._store.run(partial(JobDatabase.note, job=work.job, stage=stage))

    async def _claim(self, routes: Routes, limits: JobLimits) -> None:
        table = routes.lookup.table
        slots = {model.id: sum(max(t.max_concurrency, 1) for t in model.targets) or 1 for model in table.models}
        while table.serving and len(self._works) < MAX_RUNNING:
            self._crew.join()
            job = await self._store.run(lambda db: db.claim(self._crew.name, slots, time.time()))
            if job is None:
                return
            work = self._works[job.seq] = Work(job, Ticket())
            work.task = asyncio.get_running_loop().create_task(self._work(work, limits), name=f"job {job.id}")

    async def _work(self, work: Work, limits: JobLimits) -> None:
        try:
            await self._do(work, limits)
        except Exception as error:  # noqa: BLE001 - the boundary of one job
            self._log.error("job_broke", job=work.job.id, error=repr(error))
            await self._write(work, lambda db: db.fail(work.job, _BROKE, time.time()))
        finally:
            if self._works.get(work.job.seq) is work:
                del self._works[work.job.seq]
            self.wake()

    async def _do(self, work: Work, limits: JobLimits) -> None:
        job = work.job
        body = await self._store.run(lambda db: db.read_request(job))
        try:
            answer = await ask(
                self._app, job.path, _headers(job), body, ticket=work.ticket, limit_bytes=MAX_RESULT_BYTES
            )
        except ResultTooLarge:
            await self._write(work, lambda db: db.fail(job, _TOO_LARGE, time.time()))
            return
        outcome = judge(answer)
        if isinstance(outcome, Done):
            await self._keep(work, answer, limits)
        elif isinstance(outcome, Again):
            again = outcome
            due_s = time.time() + again.after_s
            await self._write(
                work,
                lambda db: db.requeue(job, not_before_s=due_s, step=again.code, whole_model=again.whole_model),
            )
        else:
            error = outcome.error
            await self._write(work, lambda db: db.fail(job, error, time.time()))

    async def _keep(self, work: Work, answer: Answer, limits: JobLimits) -> None:
        job, kind = work.job, answer.header(b"content-type")
        routes = self._state.routes
        node = routes.lookup.table.node if routes is not None else ""
        stage = Stage(node, answer.header(b"x-llmgw-target"), started_s=work.ticket.started_s)

        def finish(db: JobDatabase) -> None:
            db.note(job, stage)
            db.finish(job, answer.body, status=answer.status, content_type=kind, now_s=time.time(), limits=limits)

        try:
            await self._store.run(finish)
        except LlmgwError as error:
            self._log.warning("job_result_not_kept", job=job.id, code=error.code, size_bytes=len(answer.body))
            await self._write(work, lambda db: db.fail(job, _NOT_KEPT, time.time()))

    async def _write(self, work: Work, change: Change) -> None:
        """Write a job's end down, however often the disk refuses: until then it is not over."""
        backoff = Backoff(0.5, 10.0)
        told = False
        while True:
            try:
                await self._store.run(change)
                return
            except LlmgwError as error:
                if not told:
                    self._log.warning("job_not_written", job=work.job.id, code=error.code)
                told = True
                await asyncio.sleep(backoff.next_s())


def _headers(job: Job) -> Headers:
    """What the request for a job carries: whose it is, and its id for the log."""
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"x-request-id", job.id.encode())]
    if job.owner:
        headers.append((b"x-api-key", CredentialDigest(bytes.fromhex(job.owner))))
    return headers


class JobsLifecycle:
    """Begins with the worker and ends with it; a middleware of its own, for it must end before the connections do."""

    def __init__(self, runner: Runner, log: EventLogger) -> None:
        self._runner = runner
        self._log = log
        self._task: asyncio.Task[None] | None = None

    async def process_startup(self, scope: object, event: object) -> None:
        living = supervise("jobs", self._runner.run, self._log, Backoff(0.5, 10.0))
        self._task = asyncio.get_running_loop().create_task(living, name="jobs")

    async def process_shutdown(self, scope: object, event: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._runner.close()
