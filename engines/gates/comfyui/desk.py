"""The gate's desk: takes prompts in, follows ComfyUI's work on them, ends them, and knows whose each one is.

All prompts run under the gate's own client id, so one websocket hears of all of them, also after the gate was started
again: the id is kept. What the websocket says is progress, and the callers' own websockets hear it, too; that a prompt
is over, and how, is asked for (`/queue`, `/history`), once a second while there is work and at once when a message
hints at it. A prompt that ComfyUI knows no more is lost: it ended with the engine that had it.
"""

import asyncio
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import msgspec

from core.errors import ConflictError, LlmgwError, NotFoundError, RefusedError, UsageError
from core.files import ensure_directory, write_atomic
from core.log import EventLogger
from engines.gates.comfyui.engine import ComfyEngine, Queue, Result
from engines.gates.comfyui.graph import Workflow
from engines.gates.comfyui.jobs import (
    ENDS,
    Job,
    JobError,
    JobRecord,
    JobState,
    Progress,
    bound_outputs,
    files_of,
    read_message,
)
from engines.gates.comfyui.ledger import KEEP, Ledger, find_surplus
from engines.gates.comfyui.places import File
from engines.gates.comfyui.sockets import Sockets
from engines.gates.comfyui.telling import GREETING, read_preview

MAX_OPEN = 100
"""Prompts that one caller may have waiting or running."""
_LOOK_S = 1.0
_AT_ONCE = 100
"""Messages that are heard before others have a turn."""
_BACKOFF_S = (0.1, 0.3, 1.0, 3.0)
_TRIES = 3

LOST = JobError("engine_lost", "the engine ended before the workflow did")


class PromptUnknown(NotFoundError):
    """The caller has no prompt of that id."""

    code = "prompt_unknown"


class TooManyPrompts(RefusedError):
    """The caller has enough under way."""

    code = "too_many_prompts"


class InterruptUnsafe(ConflictError):
    """This ComfyUI cannot stop one prompt without the risk of stopping another."""

    code = "interrupt_unsafe"


class PromptRefused(UsageError):
    """ComfyUI itself does not take the prompt. `body` is its answer, less what it says of other things."""

    code = "workflow_invalid"

    def __init__(self, message: str, body: bytes) -> None:
        super().__init__(message)
        self.body = body


class Desk:
    """See the module. Lives on one event loop; `run` follows the work until cancelled."""

    def __init__(
        self,
        engine: ComfyEngine,
        state: Path,
        log: EventLogger,
        clock: Callable[[], float] = time.time,
        on_reconnect: Callable[[], None] = lambda: None,
        sockets: Sockets | None = None,
    ) -> None:
        """`clock`: the wall clock. `on_reconnect` is called whenever ComfyUI may be another than before.

        `sockets`: who hears of the work while it is done.
        """
        self._engine = engine
        self._ledger = Ledger(state)
        self._log = log
        self._clock = clock
        self._on_reconnect = on_reconnect
        self._client_id = _read_client_id(state)
        self._jobs: dict[str, Job] = {record.id: Job(record) for record in self._ledger.load()}
        self._wake = asyncio.Event()
        self._came = asyncio.Event()
        """A moment whenever a prompt comes."""
        self._sockets = sockets if sockets is not None else Sockets()
        self._at_work = ""
        """Of the prompt that ComfyUI's last message was about, until it says that it is over."""
        self.steps = 0
        """Signs of work so far: messages about prompts, and looks at which ComfyUI said that it runs one."""

    # what callers ask

    async def submit(self, workflow: Workflow, caller: str, handle: str) -> tuple[Job, float]:
        """Have a workflow run. The job, and ComfyUI's number for it.

        Raises: TooManyPrompts, PromptRefused, StorageError, and what `ComfyEngine` raises.
        """
        if sum(job.record.caller == caller for job in self.open_jobs()) >= MAX_OPEN:
            raise TooManyPrompts(f"{MAX_OPEN} of your prompts wait or run already")
        record = JobRecord(
            id=str(uuid.uuid4()), caller=caller, handle=handle, client=workflow.client, accepted_at=self._clock(),
            node_count=len(workflow.graph),
        )  # fmt: skip
        self._ledger.add(record)
        classes = {node_id: node.class_type for node_id, node in workflow.graph.items()}
        job = Job(record, classes, accepted_s=float("inf"))
        self._jobs[job.id] = job
        self._came.set()
        self._came.clear()
        try:
            reply = await self._engine.submit(workflow.encode(job.id, self._client_id))
        except BaseException:
            # Whether it was taken in is not known: the next look at the queue will tell, and end it.
            job.accepted_s, job.is_cancelled = asyncio.get_running_loop().time(), True
            self._wake.set()
            raise
        if reply.status != 200:
            self._end(job, JobState.FAILED, error=JobError("workflow_invalid", "ComfyUI did not take it"))
            raise _explain(reply.body)
        job.accepted_s = asyncio.get_running_loop().time()
        self._forget_old()
        self._wake.set()
        self._tell_queue(caller)
        return job, _read_number(reply.body)

    def find(self, caller: str, name: str) -> Job:
        """The caller's job of this id or handle. Raises: PromptUnknown, the same for others' and for none."""
        job = self._jobs.get(name)
        if job is None:
            job = next(
                (j for j in reversed(self._jobs.values()) if j.record.handle == name and _is_of(j, caller)), None
            )
        if job is None or not _is_of(job, caller):
            raise PromptUnknown(f"you have no prompt {name[:60]!r}")
        return job

    def of(self, caller: str) -> list[Job]:
        """The caller's jobs, oldest first."""
        return [job for job in self._jobs.values() if _is_of(job, caller)]

    def open_jobs(self) -> list[Job]:
        """Everybody's that are not over, in the order in which they are run."""
        return [job for job in self._jobs.values() if not job.record.state.is_final]

    def open_of(self, caller: str) -> int:
        """How many prompts of a caller are not over."""
        return sum(not job.record.state.is_final for job in self.of(caller))

    def progress(self, job: Job) -> Progress:
        opened = self.open_jobs()
        return job.progress(opened.index(job) if job in opened else 0)

    def temporary_files(self, caller: str) -> set[File]:
        """Files in ComfyUI's temporary folder that appeared in the caller's results."""
        return {
            file for job in self.of(caller) for _, file in files_of(job.record.outputs) if file.folder == "temp"
        }  # fmt: skip

    async def cancel(self, job: Job) -> None:
        """End it, wherever it is; returns when ComfyUI was told. Raises: InterruptUnsafe, as `ComfyEngine`."""
        for _ in range(_TRIES):
            if job.record.state.is_final:
                return
            queue = await self._engine.read_queue()
            if job.id in queue.running:
                await self._interrupt(job)
                return
            if job.id not in queue.pending:
                return
            job.is_cancelled = True
            await self._engine.delete_pending(job.id)
            self._wake.set()
            # It may have begun just then, and what runs is not deleted: look again.

    async def stop(self, job: Job, error: JobError) -> None:
        """End it, as failed by this error. Raises: as `cancel`."""
        job.stopped_for = error
        await self.cancel(job)

    # what the shelf asks

    async def until_busy(self) -> None:
        """Until there is a prompt that is not over."""
        while not self.open_jobs():
            await self._came.wait()

    def open_since(self) -> dict[str, float]:
        """When the oldest prompt of each caller came that is not over."""
        found: dict[str, float] = {}
        for job in self.open_jobs():
            found.setdefault(job.record.caller, job.record.accepted_at)
        return found

    def temporary_owners(self) -> dict[str, str]:
        """Path in ComfyUI's temporary folder -> the caller in whose results it appeared."""
        return {
            f"{file.subfolder}/{file.name}".lstrip("/"): job.record.caller
            for job in self._jobs.values()
            for _, file in files_of(job.record.outputs)
            if file.folder == "temp"
        }

    async def _interrupt(self, job: Job) -> None:
        if not await self._engine.can_interrupt_one():
            raise InterruptUnsafe(
                "this ComfyUI may stop another's prompt instead",
                hint="ComfyUI 0.3.64 and later stop the one that is named",
            )
        job.is_cancelled = True
        await self._engine.interrupt(job.id)
        self._wake.set()

    # following the work

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._listen())
            group.create_task(self._look_for_ever())

    async def _listen(self) -> None:
        failures = 0
        while True:
            try:
                async with self._engine.http.messages(f"/ws?clientId={self._client_id}") as stream:
                    self._log.info("comfyui_connected")
                    self._on_reconnect()
                    self._wake.set()
                    failures, self._at_work = 0, ""
                    await stream.say(GREETING)
                    heard = 0
                    async for message in stream.messages():
                        if isinstance(message, str):
                            self._hear(message)
                        else:
                            self._see(message)
                        heard += 1
                        if heard % _AT_ONCE == 0:
                            # Many come in one turn of the loop, and callers who read must get theirs meanwhile.
                            await asyncio.sleep(0)
            except LlmgwError as error:
                if failures == 0:
                    self._log.info("comfyui_not_connected", error=error.message)
            await asyncio.sleep(_BACKOFF_S[min(failures, len(_BACKOFF_S) - 1)])
            failures += 1

    def _hear(self, text: str) -> None:
        message = read_message(text)
        if message is None:
            return
        kind, event = message
        job = self._jobs.get(event.prompt_id)
        is_over = kind in ENDS or (kind == "executing" and event.node is None)
        self._at_work = job.id if job is not None and not is_over else ""
        if job is None or job.record.state.is_final:
            return
        self.steps += 1
        job.hear(kind, event)
        if kind in ENDS:
            self._wake.set()
        elif not is_over:  # that it is over is told when its result is here to be asked for
            self._sockets.pass_on(job, kind, event.node or "", text)

    def _see(self, frame: bytes) -> None:
        """A preview: of the prompt that it names, else of the one that ComfyUI's messages are about."""
        preview = read_preview(frame)
        job = self._jobs.get(preview.prompt_id or self._at_work) if preview is not None else None
        if preview is not None and job is not None and not job.record.state.is_final:
            self._sockets.show(job, preview)

    async def _look_for_ever(self) -> None:
        while True:
            self._wake.clear()
            try:
                await self._look()
            except LlmgwError as error:
                self._log.debug("comfyui_not_asked", error=error.message)
            try:
                async with asyncio.timeout(_LOOK_S if self.open_jobs() else None):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _look(self) -> None:
        """Compare what is open here with what ComfyUI has. Raises: LlmgwError when it does not answer."""
        if not self.open_jobs():
            return
        began_s = asyncio.get_running_loop().time()
        queue = await self._engine.read_queue()
        self.steps += bool(queue.running)
        for job in self.open_jobs():
            if job.accepted_s < began_s:
                await self._settle(job, queue)

    async def _settle(self, job: Job, queue: Queue) -> None:
        if job.is_cancelled and job.id in queue:
            try:
                await self.cancel(job)  # again: whoever wanted it may have left before ComfyUI was told
            except InterruptUnsafe as error:
                self._log.warning("prompt_not_stopped", prompt=job.id, error=error.message)
        if job.id in queue.running:
            job.move(JobState.RUNNING)
        elif job.id not in queue.pending:
            result = await self._engine.read_result(job.id)
            if job.record.state.is_final:
                return
            if result is not None:
                self._finish(job, result)
            elif job.is_cancelled:
                self._end(job, JobState.CANCELLED)
            else:
                self._end(job, JobState.FAILED, error=LOST)

    def _finish(self, job: Job, result: Result) -> None:
        if result.interrupted:
            self._end(job, JobState.CANCELLED, result.outputs)
        elif result.error is not None:
            self._end(job, JobState.FAILED, result.outputs, result.error)
        else:
            self._end(job, JobState.DONE, result.outputs)

    def _end(
        self, job: Job, state: JobState, outputs: dict[str, object] | None = None, error: JobError | None = None
    ) -> None:
        kept = bound_outputs(outputs or {})
        if state is JobState.CANCELLED and job.stopped_for is not None:
            state, error = JobState.FAILED, job.stopped_for
        job.close(msgspec.structs.replace(job.record, state=state, outputs=kept, error=error))
        try:
            self._ledger.add(job.record)
        except LlmgwError as failure:
            # It is known here as long as this gate lives; the next one asks ComfyUI again.
            self._log.warning("ledger_not_written", code=failure.code, error=failure.message)
        self._sockets.ended(job)
        self._tell_queue(job.record.caller)
        self._log.info("prompt_ended", prompt=job.id, caller=job.record.caller, state=state)

    def _tell_queue(self, caller: str) -> None:
        self._sockets.tell_queue(caller, self.open_of(caller))

    def _forget_old(self) -> None:
        if len(self._jobs) > KEEP:
            for old in find_surplus([job.record for job in self._jobs.values()], KEEP):
                del self._jobs[old]


def _is_of(job: Job, caller: str) -> bool:
    return job.record.caller == caller


def _read_client_id(state: Path) -> str:
    """The gate's name for ComfyUI, made once: it must not change while prompts run under it. Raises: StorageError."""
    path = state / "client-id"
    ensure_directory(state, mode=0o700)
    try:
        return str(uuid.UUID(path.read_text("ascii").strip()))
    except (OSError, ValueError):
        made = str(uuid.uuid4())
        write_atomic(path, made, mode=0o600)
        return made


class _Accepted(msgspec.Struct):
    number: float = 0.0


class _Refusal(msgspec.Struct):
    error: dict[str, object] = {}
    node_errors: dict[str, dict[str, object]] | list[object] = {}


def _read_number(body: bytes) -> float:
    try:
        return msgspec.json.decode(body, type=_Accepted).number
    except (msgspec.MsgspecError, UnicodeError):
        return 0.0


def _explain(body: bytes) -> PromptRefused:
    """ComfyUI's own words about a graph, without `extra_info`: that lists files and settings of the machine."""
    try:
        refusal = msgspec.json.decode(body, type=_Refusal)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return PromptRefused("ComfyUI did not take the workflow", b"")
    nodes = refusal.node_errors if isinstance(refusal.node_errors, dict) else {}
    for told in nodes.values():
        errors = told.get("errors")
        for error in errors if isinstance(errors, list) else ():
            if isinstance(error, dict):
                error.pop("extra_info", None)
    message = str(refusal.error.get("message", "ComfyUI did not take the workflow"))
    error = {
        "message": message,
        "type": str(refusal.error.get("type", "invalid_prompt")),
        "code": PromptRefused.code,
        "details": str(refusal.error.get("details", "")),
    }
    return PromptRefused(message, msgspec.json.encode({"error": error, "node_errors": nodes}))
