"""One line per inference request, written when the request has really ended.

Built with one f-string instead of the general logger: this runs for every request, and its cost is part of what a
request costs. Names that come from elsewhere are quoted unless they are plain.
"""

import json
import os
import re
from dataclasses import dataclass

from core.log import EventLogger, Level

_SANE_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")


@dataclass(slots=True)
class RequestRecord:
    """What is known of a request, filled in as it goes."""

    request_id: str
    path: str
    started_s: float
    model: str = ""
    stream: bool = False
    key: str = ""
    target: str = ""
    attempts: int = 0
    status: int = 0
    size_bytes: int = 0
    first_byte_s: float = 0.0
    ended: str = "complete"
    code: str = ""


class RequestIds:
    """Ids for requests that bring none: a random start per process and a counter, so no two ever meet."""

    def __init__(self) -> None:
        self._prefix = os.urandom(6).hex()
        self._count = 0

    def read_or_make(self, offered: bytes) -> str:
        """The client's `x-request-id` when it is sane (at most 128 plain characters), else a new one."""
        if offered and _SANE_ID.fullmatch(offered):
            return offered.decode("ascii")
        self._count += 1
        return f"{self._prefix}-{self._count:x}"


def log_request(log: EventLogger, record: RequestRecord, now_s: float) -> None:
    """Write the line, at info; a client that is gone before its answer has status 0."""
    if not log.enabled(Level.INFO):
        return
    r = record
    log.info(
        f"request id={r.request_id} path={r.path} model={_shown(r.model)} status={r.status} ended={r.ended}"
        f" target={_shown(r.target)} attempts={r.attempts} stream={'yes' if r.stream else 'no'}"
        f" key={_shown(r.key)} size_bytes={r.size_bytes} first_byte_s={r.first_byte_s:.4f}"
        f" took_s={now_s - r.started_s:.4f}{' code=' + r.code if r.code else ''}"
    )


def _shown(text: str) -> str:
    """A name as it stands in the line: bare when it is plain, quoted when it could be taken for something else."""
    if not text:
        return "-"
    return text if text.isprintable() and " " not in text and '"' not in text and "=" not in text else json.dumps(text)
