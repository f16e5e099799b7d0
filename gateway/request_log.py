"""One line per inference request, written when the request has really ended.

This runs for every request, and its cost is part of what a request costs: a line is one f-string, and lines leave
together, at most `FLUSH_S` after their request. Names that come from elsewhere are quoted unless they are plain.
"""

import asyncio
import json
import os
import re
from functools import lru_cache

from core.log import EventLogger, Level
from gateway.ending import RequestRecord

FLUSH_S = 0.1
_FLUSH_LINES = 256
_SANE_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")


class RequestIds:
    """Ids for requests that bring none: a random start per process and a counter, so no two ever meet."""

    def __init__(self) -> None:
        self._prefix = f"{os.urandom(6).hex()}-"
        self._count = 0

    def read_or_make(self, offered: bytes) -> str:
        """The client's `x-request-id` when it is sane (at most 128 plain characters), else a new one."""
        if offered and _SANE_ID.fullmatch(offered):
            return offered.decode("ascii")
        self._count += 1
        return f"{self._prefix}{self._count}"


class RequestLog:
    """Collects the lines of this worker's requests."""

    def __init__(self, log: EventLogger) -> None:
        self._log = log
        self._lines: list[str] = []

    def request_ended(self, record: RequestRecord) -> None:
        """Add the request's line, at info (`gateway.ending.Listener`)."""
        if not self._log.enabled(Level.INFO):
            return
        lines = self._lines
        if not lines:
            asyncio.get_running_loop().call_later(FLUSH_S, self.flush)
        lines.append(format_record(record))
        if len(lines) >= _FLUSH_LINES:
            self.flush()

    def flush(self) -> None:
        """Write what has been collected."""
        lines, self._lines = self._lines, []
        if lines:
            self._log.info_lines(lines)


def format_record(record: RequestRecord) -> str:
    """The line. Pure."""
    r = record
    known = _describe(
        r.path, r.model, r.target, r.key, r.stream, r.status, r.ended, r.attempts, r.code, r.is_estimated, r.why
    )
    # Numbers with a point are half of what a line costs: nearly no request waits, and nearly every answer begins whole.
    queued = f"{r.queued_s:.3f}" if r.queued_s else "0.000"
    first_byte = f"{r.first_byte_s:.4f}"
    first_token = first_byte if r.first_data_s == r.first_byte_s else f"{r.first_data_s:.4f}"
    return (
        f"request id={r.request_id}{known} size_bytes={r.size_bytes} queued_s={queued}"
        f" prompt_tokens={r.prompt_tokens} cached_tokens={r.cached_tokens} completion_tokens={r.completion_tokens}"
        f" first_byte_s={first_byte} first_token_s={first_token}"
        f" took_s={r.ended_s - r.started_s:.4f} client={r.client or '-'}"
    )


@lru_cache(maxsize=1024)
def _describe(  # noqa: PLR0913 - all that is the same from one request to the next
    path: str,
    model: str,
    target: str,
    key: str,
    stream: bool,
    status: int,
    ended: str,
    attempts: int,
    code: str,
    is_estimated: bool,
    why: str,
) -> str:
    return (
        f" path={path} model={_shown(model)} status={status} ended={ended}{f' code={code}' if code else ''}"
        f" target={_shown(target)} attempts={attempts} stream={'yes' if stream else 'no'} key={_shown(key)}"
        f" why={why or '-'} estimated={'yes' if is_estimated else 'no'}"
    )


def _shown(text: str) -> str:
    """A name as it stands in the line: bare when it is plain, quoted when it could be taken for something else."""
    if not text:
        return "-"
    return text if text.isprintable() and " " not in text and '"' not in text and "=" not in text else json.dumps(text)
