"""Routes about a caller's own work: how it stands, what came of it, and ending it."""

from falcon.asgi import Request, Response

from engines.gates.answers import write_json
from engines.gates.comfyui.asking import (
    InterruptOrder,
    QueueOrder,
    read_caller,
    read_count,
    read_order,
    read_query,
)
from engines.gates.comfyui.desk import Desk
from engines.gates.comfyui.jobs import Job, JobState

_NOTHING: dict[str, object] = {}


class ProgressRoute:
    """`GET /progress/{id}`, by prompt id or by the gateway's request id."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def on_get(self, req: Request, resp: Response, name: str) -> None:
        resp.set_header("Cache-Control", "no-store")
        write_json(resp, self._desk.progress(self._desk.find(read_caller(req), name)))


class QueueRoute:
    """`/queue`: the caller's own prompts, and taking them back."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def on_get(self, req: Request, resp: Response) -> None:
        caller = read_caller(req)
        own = [(at, job) for at, job in enumerate(self._desk.open_jobs()) if job.record.caller == caller]
        write_json(
            resp,
            {
                "queue_running": [_entry(at, job) for at, job in own if job.record.state is JobState.RUNNING],
                "queue_pending": [_entry(at, job) for at, job in own if job.record.state is JobState.QUEUED],
            },
        )

    async def on_post(self, req: Request, resp: Response) -> None:
        caller, order = read_caller(req), await read_order(req, QueueOrder)
        # All are looked up before the first is touched: one foreign id, and nothing happens.
        jobs = (
            [self._desk.find(caller, name) for name in dict.fromkeys(order.delete)]
            if isinstance(order, QueueOrder)
            else []
        )
        for job in jobs:
            if job.record.state is JobState.QUEUED:
                await self._desk.cancel(job)
        write_json(resp, _NOTHING)


class Interrupt:
    """`POST /interrupt`: ends what of the caller's runs, or the prompt that it names."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def on_post(self, req: Request, resp: Response) -> None:
        caller, order = read_caller(req), await read_order(req, InterruptOrder)
        name = order.prompt_id if isinstance(order, InterruptOrder) else ""
        jobs = [self._desk.find(caller, name)] if name else self._desk.of(caller)
        # Read before the first is ended: the next begins then, and nobody asked to end that.
        for job in [job for job in jobs if job.record.state is JobState.RUNNING]:
            await self._desk.cancel(job)
        write_json(resp, _NOTHING)


class History:
    """`GET /history` and `/history/{id}`: the caller's prompts that are over."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def on_get(self, req: Request, resp: Response) -> None:
        query = read_query(req, frozenset({"max_items", "offset"}))
        most, offset = read_count(query, "max_items", -1), read_count(query, "offset", -1)
        over = [job for job in self._desk.of(read_caller(req)) if job.record.state.is_final]
        if offset >= 0:
            over = over[offset:]
            over = over[:most] if most >= 0 else over
        elif most >= 0:
            over = over[len(over) - min(most, len(over)) :]
        write_json(resp, {job.id: _result(job) for job in over})

    async def on_get_one(self, req: Request, resp: Response, name: str) -> None:
        job = self._desk.find(read_caller(req), name)
        write_json(resp, {job.id: _result(job)} if job.record.state.is_final else _NOTHING)


def _entry(number: int, job: Job) -> list[object]:
    """As ComfyUI writes an entry of its queue, without the graph."""
    return [number, job.id, {}, {}, []]


def _result(job: Job) -> dict[str, object]:
    """As ComfyUI writes an entry of its history, without the graph and the traceback."""
    record = job.record
    is_done = record.state is JobState.DONE
    messages: list[list[object]] = []
    if record.state is JobState.CANCELLED:
        messages.append(["execution_interrupted", {"prompt_id": job.id}])
    elif record.error is not None:
        error = record.error
        told = {"prompt_id": job.id, "exception_message": error.message, "exception_type": error.code}
        messages.append(["execution_error", {**told, "node_id": error.node, "node_type": error.class_type}])
    status = {"status_str": "success" if is_done else "error", "completed": is_done, "messages": messages}
    return {"outputs": record.outputs, "status": status, "meta": {}}
