"""Routes that bring work: `POST /prompt`, which answers at once, and `POST /v1/workflows`, which answers at the end."""

import asyncio

import falcon
from falcon.asgi import Request, Response

from core.errors import LlmgwError
from core.log import EventLogger
from engines.gates.answers import write_error, write_json
from engines.gates.comfyui.asking import read_bytes, read_caller, read_handle
from engines.gates.comfyui.catalog import NodeCatalog
from engines.gates.comfyui.desk import Desk, PromptRefused
from engines.gates.comfyui.graph import PromptBody, own_workflow, read_body
from engines.gates.comfyui.jobs import Job, JobState, files_of
from engines.gates.comfyui.places import File
from engines.gates.comfyui.shelf import Shelf

_FAILURES = {"engine_lost": 503}
"""Codes for which the same workflow may well succeed elsewhere, so the gateway may try; all others are the caller's."""


class Prompts:
    """`/prompt`, as ComfyUI has it."""

    def __init__(self, desk: Desk, nodes: NodeCatalog, shelf: Shelf) -> None:
        self._desk = desk
        self._nodes = nodes
        self._shelf = shelf

    async def on_post(self, req: Request, resp: Response) -> None:
        try:
            job, number, _ = await take_in(req, self._desk, self._nodes, self._shelf)
        except PromptRefused as error:
            write_refusal(resp, error)
            return
        write_json(resp, {"prompt_id": job.id, "number": number, "node_errors": {}})

    async def on_get(self, req: Request, resp: Response) -> None:
        write_json(resp, {"exec_info": {"queue_remaining": self._desk.open_of(read_caller(req))}})


class Workflows:
    """`/v1/workflows`: one request for the whole work, so that it holds a slot as any other; who leaves ends it."""

    def __init__(self, desk: Desk, nodes: NodeCatalog, shelf: Shelf, log: EventLogger) -> None:
        self._desk = desk
        self._nodes = nodes
        self._shelf = shelf
        self._log = log
        self._ending: set[asyncio.Task[None]] = set()

    async def on_post(self, req: Request, resp: Response) -> None:
        try:
            job, _, asked = await take_in(req, self._desk, self._nodes, self._shelf)
        except PromptRefused as error:
            write_refusal(resp, error)
            return
        try:
            await job.ended.wait()
        except asyncio.CancelledError:
            self._end(job)
            raise
        _write_outcome(resp, job, asked)

    def _end(self, job: Job) -> None:
        """The client left. Telling ComfyUI must outlive this request."""
        job.is_cancelled = True
        task = asyncio.get_running_loop().create_task(self._tell(job))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _tell(self, job: Job) -> None:
        try:
            await self._desk.cancel(job)
        except LlmgwError as error:
            self._log.warning("prompt_not_stopped", prompt=job.id, code=error.code, error=error.message)


async def take_in(req: Request, desk: Desk, nodes: NodeCatalog, shelf: Shelf) -> tuple[Job, float, PromptBody]:
    """Raises: LlmgwError of many kinds; PromptRefused has an answer of its own."""
    caller = read_caller(req)
    asked = read_body(await read_bytes(req))
    workflow = own_workflow(asked, caller, await nodes.classes())
    await shelf.admit_prompt(caller)
    job, number = await desk.submit(workflow, caller, read_handle(req))
    return job, number, asked


def write_refusal(resp: Response, error: PromptRefused) -> None:
    """ComfyUI's own explanation, which clients of ComfyUI know how to read."""
    if not error.body:
        write_error(resp, error.http_status, error.code, error.message)
        return
    resp.status = error.http_status
    resp.content_type = falcon.MEDIA_JSON
    resp.data = error.body


def _write_outcome(resp: Response, job: Job, asked: PromptBody) -> None:
    record = job.record
    if record.state is JobState.DONE:
        files = [_describe(node, file) for node, file in files_of(record.outputs)]
        told = {"id": job.id, "object": "workflow", "model": asked.model, "status": "done"}
        write_json(resp, {**told, "outputs": record.outputs, "files": files})
    elif record.state is JobState.CANCELLED:
        write_error(resp, 409, "workflow_cancelled", "The workflow was cancelled.")
    else:
        failure = record.error
        code = failure.code if failure is not None else "workflow_failed"
        message = failure.message if failure is not None else "The workflow failed."
        if failure is not None and failure.node:
            message = f"node {failure.node} ({failure.class_type}): {message}"
        write_error(resp, _FAILURES.get(code, 422), code, message)


def _describe(node: str, file: File) -> dict[str, str]:
    return {"node": node, "filename": file.name, "subfolder": file.subfolder, "type": file.folder}
