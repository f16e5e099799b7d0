"""Messages on the supervisor's control socket: one JSON object per line, in both directions.

A client sends `Request`s with ids of its own choosing, any number at once; each is answered by one `Answer` with its
id. After `subscribe`, the status of every unit comes as answers with id 0, and again at every change. Unknown fields
are ignored, so that an older daemon and a newer supervisor understand each other across an upgrade.
"""

from enum import StrEnum

import msgspec

from core.api import ErrorBody
from units.backend import UnitStatus

MAX_LINE_BYTES = 1 << 16
"""Longest request. Unit names are short, so nothing honest comes near."""

MAX_ANSWER_BYTES = 1 << 24

CONTROL_SOCKET = "control.sock"

CHANGE_ID = 0


class Operation(StrEnum):
    """What can be asked."""

    PING = "ping"
    STATUS = "status"
    LIST = "list"
    PIDS = "pids"
    START = "start"
    STOP = "stop"
    RESTART = "restart"
    KILL = "kill"
    RESET_FAILED = "reset-failed"
    RELOAD = "reload"
    SUBSCRIBE = "subscribe"
    SHUTDOWN = "shutdown"


class Request(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    op: Operation
    unit: str = ""
    signal: int = 0


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: int = CHANGE_ID
    error: ErrorBody | None = None
    statuses: list[UnitStatus] = []
    pids: list[int] = []


def encode_line(message: Request | Answer) -> bytes:
    return msgspec.json.encode(message) + b"\n"
