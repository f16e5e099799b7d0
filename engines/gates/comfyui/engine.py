"""ComfyUI as the gate asks it: the few calls that it makes itself, with their answers as types."""

import re
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from core.errors import DependencyError
from core.http.client import HttpClient, Reply
from engines.gates.comfyui.jobs import JobError

_ASK_S = 30.0
_LIMIT_BYTES = 64 << 20
_TARGETED_INTERRUPT = (0, 3, 64)
"""From this version on `POST /interrupt` with a prompt's id is known to stop that prompt and no other."""
_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?")
_SHOWN = 500

T = TypeVar("T")


class EngineRefused(DependencyError):
    """ComfyUI answered what it should not."""

    code = "comfyui_refused"


@dataclass(frozen=True, slots=True)
class Queue:
    """Ids of prompts, in the order in which they are run."""

    running: tuple[str, ...]
    pending: tuple[str, ...]

    def __contains__(self, prompt_id: str) -> bool:
        return prompt_id in self.running or prompt_id in self.pending


@dataclass(frozen=True, slots=True)
class Result:
    """How a prompt ended."""

    outputs: dict[str, object]
    error: JobError | None = None
    interrupted: bool = False


class _QueueAnswer(msgspec.Struct):
    queue_running: list[list[object]] = []
    queue_pending: list[list[object]] = []


class _Status(msgspec.Struct):
    status_str: str = ""
    messages: list[tuple[str, dict[str, object]]] = []


class _Entry(msgspec.Struct):
    outputs: dict[str, object] = {}
    status: _Status | None = None


class _System(msgspec.Struct, frozen=True):
    comfyui_version: str = ""


class _Stats(msgspec.Struct):
    system: _System = _System()


class ComfyEngine:
    """One ComfyUI on loopback. Every call raises Unreachable, AnswerTimedOut, EngineRefused."""

    def __init__(self, http: HttpClient) -> None:
        self.http = http

    async def submit(self, body: bytes) -> Reply:
        """Its answer to a prompt, accepted (200) or not (400)."""
        reply = await self._ask("POST", "/prompt", body)
        if reply.status not in (200, 400):
            raise _refused("/prompt", reply)
        return reply

    async def read_queue(self) -> Queue:
        answer = decode_answer(_QueueAnswer, await self._get("/queue"), "/queue")
        pending = sorted(answer.queue_pending, key=lambda entry: _number(entry[:1]))
        return Queue(_ids(answer.queue_running), _ids(pending))

    async def read_result(self, prompt_id: str) -> Result | None:
        """None while it is not over, and for one that ComfyUI does not know."""
        found = decode_answer(dict[str, _Entry], await self._get(f"/history/{prompt_id}"), "/history")
        entry = found.get(prompt_id)
        if entry is None:
            return None
        status = entry.status or _Status("success")
        told = {kind: data for kind, data in status.messages}
        if "execution_interrupted" in told:
            return Result(entry.outputs, interrupted=True)
        if status.status_str != "success":
            return Result(entry.outputs, _read_error(told.get("execution_error", {})))
        return Result(entry.outputs)

    async def delete_pending(self, prompt_id: str) -> None:
        await self._post("/queue", {"delete": [prompt_id]})

    async def interrupt(self, prompt_id: str) -> None:
        """Stop it if it is the one that runs."""
        await self._post("/interrupt", {"prompt_id": prompt_id})

    async def read_object_info(self) -> bytes:
        return await self._get("/object_info")

    async def can_interrupt_one(self) -> bool:
        """Whether an interrupt can name its prompt. One that cannot might hit the next prompt instead."""
        stats = decode_answer(_Stats, await self._get("/system_stats"), "/system_stats")
        return read_version(stats.system.comfyui_version) >= _TARGETED_INTERRUPT

    async def _get(self, path: str) -> bytes:
        reply = await self._ask("GET", path)
        if reply.status != 200:
            raise _refused(path, reply)
        return reply.body

    async def _post(self, path: str, body: object) -> None:
        reply = await self._ask("POST", path, msgspec.json.encode(body))
        if reply.status != 200:
            raise _refused(path, reply)

    async def _ask(self, method: str, path: str, body: bytes = b"") -> Reply:
        headers = {"Content-Type": "application/json"} if body else {}
        return await self.http.fetch(
            method, path, headers=headers, body=body, timeout_s=_ASK_S, limit_bytes=_LIMIT_BYTES
        )


def read_version(text: str) -> tuple[int, int, int]:
    """(0, 0, 0) for what names none. Pure."""
    found = _VERSION.match(text)
    return (int(found[1]), int(found[2]), int(found[3] or 0)) if found else (0, 0, 0)


def decode_answer(kind: "type[T]", body: bytes, what: str) -> T:
    """Raises: EngineRefused."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise EngineRefused(f"ComfyUI's answer to {what} cannot be read: {error}") from error


def _refused(path: str, reply: Reply) -> EngineRefused:
    said = reply.body[:_SHOWN].decode("utf-8", "replace")
    return EngineRefused(f"ComfyUI answered {path} with {reply.status}: {said}")


def _ids(entries: list[list[object]]) -> tuple[str, ...]:
    return tuple(str(entry[1]) for entry in entries if len(entry) > 1)


def _number(words: list[object]) -> float:
    return float(words[0]) if words and isinstance(words[0], (int, float)) else 0.0


def _read_error(told: dict[str, object]) -> JobError:
    """What a caller is told: the exception's words and where, without the traceback (it shows the machine's paths)."""
    message = str(told.get("exception_message", "the workflow failed")).strip()[:_SHOWN]
    return JobError(
        "workflow_failed",
        message or "the workflow failed",
        str(told.get("node_id", "")),
        str(told.get("node_type", "")),
    )
