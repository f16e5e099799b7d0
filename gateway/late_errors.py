"""Errors that come too late for a head: the stream has begun with comments (`core.http.patience`), so they are events.

Each API has its own: OpenAI's chat sends the envelope as an event's data, its Responses and Anthropic's Messages name
the event `error`. None of them is followed by a terminator.
"""

import msgspec

from core.http.patience import EventDialect
from gateway.ending import RequestRecord
from gateway.errors import envelope
from gateway.table import COUNT_TOKENS, MESSAGES, RESPONSES
from gateway.translate.messages_errors import read_message, translate_refusal
from gateway.translate.sse import write_event

_WHOLE_ONLY = frozenset({"/v1/embeddings", "/v1/rerank", "/v1/score", "/tokenize", "/detokenize", COUNT_TOKENS})
"""Paths that are never answered by events, whatever a request says of `stream`."""


class StreamDialect:
    """How one request's stream begins and fails (`core.http.patience.EventDialect`)."""

    def __init__(self, path: str, request_id: str) -> None:
        self._path = path
        self._request_id = request_id

    def head_lines(self) -> bytes:
        return b"x-request-id: %b\r\n" % self._request_id.encode("ascii")

    def refusal_event(self, status: int, body: bytes) -> bytes:
        if self._path == MESSAGES:
            return b"event: error\ndata: %b\n\n" % _on_one_line(status, translate_refusal(status, body))
        if self._path == RESPONSES:
            message = read_message(body) or _default(status)
            event: dict[str, object] = {"type": "error", "code": _read_code(body), "message": message, "param": None}
            return write_event("error", event | {"sequence_number": 0})
        return b"data: %b\n\n" % _on_one_line(status, body)


def find_dialect(record: RequestRecord) -> EventDialect | None:
    """Who speaks to the client of this request while there is silence; None: it does not read events."""
    if not record.stream or record.path in _WHOLE_ONLY:
        return None
    return StreamDialect(record.path, record.request_id)


class _Inside(msgspec.Struct, frozen=True):
    code: str | int | None = None


class _Envelope(msgspec.Struct, frozen=True):
    error: _Inside = _Inside()


def _read_code(body: bytes) -> str:
    try:
        code = msgspec.json.decode(body, type=_Envelope).error.code
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        code = None
    return str(code) if code else "upstream_failed"


def _on_one_line(status: int, body: bytes) -> bytes:
    """An engine may write its errors over several lines, or not as JSON at all: an event's data is one line."""
    try:
        line = msgspec.json.format(body, indent=-1)
        msgspec.json.decode(line)
        return line
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return envelope(status, "upstream_failed", read_message(body) or _default(status))


def _default(status: int) -> str:
    return f"The engine refused the request with status {status}."
