"""What a caller's websocket is told of its prompts, made of what ComfyUI tells the gate. Pure.

Of each kind of message the fields that are named here pass, and nothing else. A message that would be large loses its
outputs' texts, as in the history. A prompt's end is told in our own words, from its record: only then can its results
be asked for, and ComfyUI's words about a failure hold the machine's paths and what every node was given. Previews come
without their prompt's id from an older ComfyUI: `desk.py` then knows which prompt it works on.
"""

import uuid
from typing import NamedTuple

import msgspec

from engines.gates.comfyui.jobs import Job, JobError, JobState, bound_outputs

_FIELDS: dict[str, tuple[str, ...]] = {
    "execution_start": ("prompt_id", "timestamp"),
    "execution_cached": ("nodes", "prompt_id", "timestamp"),
    "executing": ("node", "display_node", "prompt_id"),
    "progress": ("value", "max", "prompt_id", "node"),
    "progress_state": ("prompt_id", "nodes"),
    "executed": ("node", "display_node", "output", "prompt_id"),
}
_LARGEST_BYTES = 256 << 10
_PREVIEW, _PREVIEW_WITH_FACTS = 1, 4
_PICTURES = {"image/jpeg": 1, "image/png": 2}
_LARGEST_PREVIEW_BYTES = 8 << 20

_messages = msgspec.json.Decoder(dict[str, msgspec.Raw])
_data = msgspec.json.Decoder(dict[str, msgspec.Raw])
_output = msgspec.json.Decoder(dict[str, object])

GREETING = '{"type":"feature_flags","data":{"supports_preview_metadata":true}}'
"""What the gate says first: previews then come with the id of their prompt, from a ComfyUI that can."""


class Preview(NamedTuple):
    """A picture of what becomes of a prompt."""

    prompt_id: str
    """Empty where ComfyUI did not say."""
    frame: bytes
    """As every client of ComfyUI knows it: two numbers, then the picture."""


class _Facts(msgspec.Struct):
    prompt_id: str = ""
    image_type: str = ""


_facts = msgspec.json.Decoder(_Facts)


def retell(kind: str, text: str) -> str:
    """A message about a prompt, as its caller may hear it; empty for what is not told."""
    fields = _FIELDS.get(kind)
    if fields is None:
        return ""
    try:
        data = _data.decode(_messages.decode(text)["data"])
        told = {name: data[name] for name in fields if name in data}
        if len(text) > _LARGEST_BYTES and "output" in told:
            told["output"] = _bound(told["output"])
        said = _say(kind, told)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, KeyError):
        return ""
    return said if len(said) <= _LARGEST_BYTES else ""


def read_preview(frame: bytes) -> Preview | None:
    """A binary message of ComfyUI's; None for one that is no preview of a picture."""
    if not 8 < len(frame) <= _LARGEST_PREVIEW_BYTES:
        return None
    kind, second, rest = int.from_bytes(frame[:4], "big"), int.from_bytes(frame[4:8], "big"), frame[8:]
    if kind == _PREVIEW:
        return Preview("", frame) if second in _PICTURES.values() else None
    if kind != _PREVIEW_WITH_FACTS or second >= len(rest):
        return None
    try:
        facts = _facts.decode(rest[:second])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    picture = _PICTURES.get(facts.image_type)
    if picture is None or not facts.prompt_id:
        return None
    return Preview(facts.prompt_id, _PREVIEW.to_bytes(4, "big") + picture.to_bytes(4, "big") + rest[second:])


def tell_status(open_prompts: int, client: str = "") -> str:
    """How many prompts the caller has that are not over; with the socket's name, the first message on it."""
    told: dict[str, object] = {"status": {"exec_info": {"queue_remaining": open_prompts}}}
    return _say("status", told | ({"sid": client} if client else {}))


def tell_running(job: Job) -> str:
    """Which node runs, for who comes in the middle."""
    return _say("executing", {"node": job.running, "display_node": job.running, "prompt_id": job.id})


def tell_end(job: Job) -> list[str]:
    """How a prompt ended: the results that were not told yet, then the two messages that every prompt ends with."""
    record, about = job.record, {"prompt_id": job.id}
    said = [
        _say("executed", {"node": node, "display_node": node, "output": output, **about})
        for node, output in record.outputs.items()
        if node not in job.told_outputs
    ]
    if record.state is JobState.DONE:
        said.append(_say("execution_success", about))
    elif record.state is JobState.CANCELLED:
        said.append(_say("execution_interrupted", {**about, "node_id": "", "node_type": "", "executed": []}))
    else:
        error = record.error or JobError("workflow_failed", "the workflow failed")
        where = {"node_id": error.node, "node_type": error.class_type, "executed": []}
        words = {"exception_message": error.message, "exception_type": error.code}
        said.append(_say("execution_error", {**about, **where, **words}))
    return [*said, _say("executing", {"node": None, "display_node": None, **about})]


def tell_features() -> str:
    """The answer to a client that says what it can: previews come in their plain form only."""
    return _say("feature_flags", {"supports_preview_metadata": False})


def name_socket() -> str:
    """For a client that gave itself no name."""
    return uuid.uuid4().hex


def _say(kind: str, data: object) -> str:
    return msgspec.json.encode({"type": kind, "data": data}).decode()


def _bound(output: msgspec.Raw) -> msgspec.Raw:
    kept = bound_outputs({"": _output.decode(output)})
    return msgspec.Raw(msgspec.json.encode(kept.get("", {})))
