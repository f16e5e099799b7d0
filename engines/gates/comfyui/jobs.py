"""One prompt of a caller, from its acceptance to its end, and what is told of it. Pure.

ComfyUI tells of its work in messages (`{"type", "data"}`); `Job.hear` takes one in. A job's end is never taken from a
message alone: `desk.py` asks for the result then.
"""

import asyncio
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from engines.gates.comfyui.places import File


class JobState(StrEnum):
    """A job's life."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        return self not in (JobState.QUEUED, JobState.RUNNING)


class JobError(msgspec.Struct, frozen=True):
    """Why a job failed."""

    code: str
    message: str
    node: str = ""
    class_type: str = ""


class JobRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What outlives the gate: one line of the ledger."""

    id: str
    caller: str
    handle: str = ""
    client: str = ""
    """The websocket of its caller that hears of it."""
    accepted_at: float = 0.0
    """Seconds since the epoch."""
    node_count: int = 0
    state: JobState = JobState.QUEUED
    outputs: dict[str, object] = {}
    """By node, as ComfyUI gave them."""
    error: JobError | None = None


class RunningNode(msgspec.Struct, frozen=True, rename="camel"):
    id: str
    class_type: str = ""


class Progress(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What `GET /progress/{id}` answers."""

    prompt_id: str
    state: JobState
    ahead: int | None = None
    """Prompts that are run before it; null once it runs."""
    node: RunningNode | None = None
    step: float | None = None
    """Of the running node."""
    steps: float | None = None
    nodes_done: int = 0
    nodes: int = 0
    percent: float = 0.0
    error: JobError | None = None


class _Event(msgspec.Struct):
    """What is read of a message's data."""

    prompt_id: str = ""
    node: str | None = None
    nodes: list[str] | dict[str, "_NodeProgress"] = []
    value: float = 0.0
    max: float = 0.0


class _NodeProgress(msgspec.Struct):
    value: float = 0.0
    max: float = 0.0
    state: str = ""


class _Message(msgspec.Struct):
    type: str
    data: msgspec.Raw = msgspec.Raw(b"{}")


_messages = msgspec.json.Decoder(_Message)
_events = msgspec.json.Decoder(_Event)

HEARD = frozenset(
    {"execution_start", "execution_cached", "executing", "progress", "progress_state", "executed"}
    | {"execution_success", "execution_error", "execution_interrupted"}
)
_OUTPUT_BYTES = 128 << 10
_OUTPUT_FILES = 500
ENDS = frozenset({"execution_success", "execution_error", "execution_interrupted"})


@dataclass(slots=True)
class Job:
    """A prompt that ComfyUI has, or had."""

    record: JobRecord
    classes: dict[str, str] = field(default_factory=dict)
    """Node -> class; empty for one that an earlier life of the gate took in."""
    accepted_s: float = float("-inf")
    """On the loop's clock, in this life of the gate."""
    is_cancelled: bool = False
    """Its caller wants it to end."""
    stopped_for: JobError | None = None
    """Why the gate itself wants it to end."""
    told_outputs: set[str] = field(default_factory=set)
    """Nodes whose results its caller's websockets have heard of."""
    running: str = ""
    done_nodes: set[str] = field(default_factory=set)
    step: tuple[float, float] | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    _done_count: int = 0
    """How many nodes were done at its end."""

    @property
    def id(self) -> str:
        return self.record.id

    def close(self, record: JobRecord) -> None:
        """It is over: only what is told of it afterwards is kept."""
        self.record = record
        self._done_count = len(self.done_nodes)
        self.classes, self.done_nodes, self.running, self.step = {}, set(), "", None
        self.ended.set()

    def move(self, state: JobState) -> None:
        self.record = msgspec.structs.replace(self.record, state=state)

    def hear(self, kind: str, event: _Event) -> None:
        """Take in one message about this job."""
        self.move(JobState.RUNNING)
        if kind == "execution_cached" and isinstance(event.nodes, list):
            self.done_nodes.update(event.nodes)
        elif kind == "executing" and event.node:
            self._turn_to(event.node)
        elif kind == "progress" and event.max > 0:
            if event.node:
                self._turn_to(event.node)
            self.step = (event.value, event.max)
        elif kind == "progress_state" and isinstance(event.nodes, dict):
            for node, progress in event.nodes.items():
                if progress.state == "finished":
                    self.done_nodes.add(node)
                elif progress.state == "running":
                    self._turn_to(node)
                    if progress.max > 0:
                        self.step = (progress.value, progress.max)
        elif kind == "executed" and event.node:
            self.done_nodes.add(event.node)

    def progress(self, ahead: int) -> Progress:
        """What is told of it; `ahead` counts while it waits."""
        record = self.record
        state, total = record.state, record.node_count
        is_running = state is JobState.RUNNING
        step = self.step if is_running else None
        share = min(1.0, step[0] / step[1]) if step is not None else 0.0
        done = total if state is JobState.DONE else min(max(len(self.done_nodes), self._done_count), total)
        percent = 100.0 * min(total, done + share) / total if total else 0.0
        return Progress(
            prompt_id=record.id,
            state=state,
            ahead=ahead if state is JobState.QUEUED else None,
            node=RunningNode(self.running, self.classes.get(self.running, "")) if is_running and self.running else None,
            step=step[0] if step is not None else None,
            steps=step[1] if step is not None else None,
            nodes_done=done,
            nodes=total,
            percent=100.0 if state is JobState.DONE else round(percent, 1),
            error=record.error,
        )

    def _turn_to(self, node: str) -> None:
        if node != self.running:
            if self.running:
                self.done_nodes.add(self.running)
            self.running, self.step = node, None
        self.done_nodes.discard(node)


def read_message(text: str) -> tuple[str, _Event] | None:
    """Kind and data of a message about a prompt; None for any other, and for what is not one."""
    try:
        message = _messages.decode(text)
        if message.type not in HEARD:
            return None
        return message.type, _events.decode(message.data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def bound_outputs(outputs: dict[str, object]) -> dict[str, object]:
    """The outputs, or of very large ones only the files: what a node shows as text is kept no longer than it is small.

    Thousands of results are kept, and a caller must not fill our memory with them.
    """
    if len(msgspec.json.encode(outputs)) <= _OUTPUT_BYTES:
        return outputs
    kept: dict[str, object] = {}
    for node, file in files_of(outputs)[:_OUTPUT_FILES]:
        entry = {"filename": file.name[:300], "subfolder": file.subfolder[:1000], "type": file.folder[:10]}
        files = kept.setdefault(node, {"files": []})
        files["files"].append(entry)  # type: ignore[index]  # made just now
    return kept


def files_of(outputs: dict[str, object]) -> list[tuple[str, File]]:
    """(node, file) of everything that a job's outputs name."""
    found: list[tuple[str, File]] = []
    for node, kinds in outputs.items():
        for entries in kinds.values() if isinstance(kinds, dict) else ():
            for entry in entries if isinstance(entries, list) else ():
                if isinstance(entry, dict) and isinstance(entry.get("filename"), str):
                    subfolder, folder = entry.get("subfolder", ""), entry.get("type", "output")
                    if isinstance(subfolder, str) and isinstance(folder, str):
                        found.append((node, File(entry["filename"], subfolder, folder)))
    return found
