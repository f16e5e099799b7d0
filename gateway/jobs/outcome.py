"""What the answer to a job's request means for the job: done, failed, or again later. Pure.

A job is there to wait, so what passes by itself (a full queue, a model that loads, a key's limit, a node that was
stopped) sends it back into the queue for as long as the refusal says. All else is the job's end.
"""

from dataclasses import dataclass

import msgspec

from core.http.asgi import Headers
from gateway.jobs.job import JobError

_AGAIN_S = 5.0
_LONGEST_WAIT_S = 3600.0
_PASSES = frozenset({"system_stopped", "gateway_not_ready"})
"""Codes that tell no time after which to come back: somebody will end them."""
_OF_THE_MODEL = frozenset(
    {
        "model_loading", "model_unavailable", "no_target", "runtime_not_ready", "runtime_capacity_busy",
        "upstream_unreachable", "RUNTIME_QUEUE_FULL", "RUNTIME_QUEUE_TIMEOUT",
    }
)  # fmt: skip
"""Codes that every request for the model would meet now."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the path's own route answered."""

    status: int
    headers: Headers
    body: bytes

    def header(self, name: bytes) -> str:
        """The first of that name; empty: none."""
        return next((value.decode("latin-1") for known, value in self.headers if known == name), "")


@dataclass(frozen=True, slots=True)
class Done:
    """The answer is the job's result."""


@dataclass(frozen=True, slots=True)
class Failed:
    error: JobError


@dataclass(frozen=True, slots=True)
class Again:
    """Back into the queue, for so long at least."""

    after_s: float
    code: str
    whole_model: bool
    """Whether all jobs for this model have to wait."""


Outcome = Done | Failed | Again


class _Inside(msgspec.Struct, frozen=True):
    message: str = ""
    code: str | int | None = None
    type: str | None = None
    model: str | None = None


class _Said(msgspec.Struct, frozen=True):
    error: _Inside | None = None


_said = msgspec.json.Decoder(_Said)


def judge(answer: Answer) -> Outcome:
    """What follows."""
    if answer.status < 400:
        return Done()
    inside = _read(answer.body)
    code = str(inside.code) if inside.code else "upstream_refused"
    retry_after = answer.header(b"retry-after")
    was_never_begun = answer.status in (429, 503) or code == "upstream_unreachable"
    if was_never_begun and (code in _PASSES or retry_after):
        return Again(_seconds(retry_after), code, code in _OF_THE_MODEL)
    message = inside.message or f"The engine answered {answer.status}."
    kind = inside.type or ("invalid_request_error" if answer.status < 500 else "server_error")
    return Failed(JobError(code, message, kind, inside.model or "", answer.status))


def _read(body: bytes) -> _Inside:
    try:
        return _said.decode(body).error or _Inside()
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return _Inside()


def _seconds(retry_after: str) -> float:
    """The header's number; a date, or nonsense, is a short while."""
    if not retry_after.isascii() or not retry_after.isdigit() or len(retry_after) > 9:
        return _AGAIN_S
    return min(max(float(retry_after), 1.0), _LONGEST_WAIT_S)
