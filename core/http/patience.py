"""What a client that asked for server-sent events hears while there is nothing to tell it.

A model that loads and an engine that reads a long prompt are silent for minutes, and whoever stands between us and the
client (load balancers, SDKs with read timeouts) takes silence for death. So such a client gets a comment when it has
heard nothing for `HttpLimits.comment_s`, between two events and also before the first. The head of the answer is then
out, always `200`: what fails afterwards can only be told as an event, in the client's dialect (`EventDialect`), and is
followed by an unclean end.

The decisions stand here, the writing in `core.http.stream` and `core.http.splice`; the service's one sweep drives it.
An object is made only for a request that is still silent when the sweep comes by.
"""

from typing import Protocol

from core.http.asgi import Headers
from core.http.date import date_line
from core.http.heads import is_event_stream
from core.http.status import STATUS_LINES

COMMENT = b": keep-alive\n\n"
"""With the blank line that ends an event, for readers that split a stream at blank lines before they look at it."""

LAST_CHUNK = b"0\r\n\r\n"
EVENT_ENDS = (b"\n\n", b"\r\n\r\n")
_CHUNK_ENDS = (b"\n\n\r\n", b"\r\n\r\n\r\n")


class EventDialect(Protocol):
    """How one client's stream begins and fails."""

    def head_lines(self) -> bytes:
        """Header lines for a stream that begins before its answer is known."""

    def refusal_event(self, status: int, body: bytes) -> bytes:
        """The event for an error whose head comes too late; `body` is that of the answer that it would have been."""


class Patience:
    """One client's silence."""

    __slots__ = ("_collected", "_dialect", "_is_refusal", "_since_s", "_size", "_status")

    def __init__(self, dialect: EventDialect, now_s: float) -> None:
        self._dialect = dialect
        self._size = -1
        self._since_s = now_s
        self._status = 0
        self._is_refusal = False
        self._collected = b""

    def is_due(self, size_bytes: int, now_s: float, limit_s: float) -> bool:
        """Whether a comment is due, `size_bytes` of the answer's body having been written so far; asking counts."""
        if size_bytes != self._size:
            self._size, self._since_s = size_bytes, now_s
            return False
        if now_s - self._since_s < limit_s:
            return False
        self._since_s = now_s
        return True

    def begin(self, *, chunked: bool, close: bool, added: bytes = b"") -> bytes:
        """The head of the stream, and its first comment."""
        return b"%b%bcontent-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\n%b%b%b\r\n%b" % (
            STATUS_LINES[200],
            date_line(),
            self._dialect.head_lines() + added,
            b"transfer-encoding: chunked\r\n" if chunked else b"",
            b"connection: close\r\n" if close else b"",
            frame(COMMENT, chunked=chunked),
        )

    # an answer of the application that comes after the head

    def answer_begins(self, status: int, headers: Headers) -> None:
        self._status = status
        self._is_refusal = status != 200 or not is_event_stream(headers)

    def pass_on(self, body: bytes, *, more: bool) -> tuple[bytes, bool]:
        """What of the answer can be written now, without framing, and whether the stream breaks with it."""
        if not self._is_refusal:
            return body, False
        self._collected += body
        if more:
            return b"", False
        # A success that is no stream was not asked for, and cannot be told any more.
        status = self._status if self._status >= 400 else 502
        return self._dialect.refusal_event(status, self._collected if self._status >= 400 else b""), True


def frame(data: bytes, *, chunked: bool) -> bytes:
    """Ready for the wire."""
    return b"%x\r\n%b\r\n" % (len(data), data) if chunked else data


def ends_between_events(tail: bytes, *, chunked: bool, is_cut: bool) -> bool:
    """Whether a body whose last bytes are `tail` can be interrupted there: after an event, and between two chunks.

    With chunks the last one is measured, so that bytes of a body that look like the end of a chunk are not taken for
    it. Where `tail` is cut off at its front (`is_cut`), and that chunk may have begun before it, the looks must do.
    """
    if not chunked:
        return not tail or tail.endswith(EVENT_ENDS)
    return not tail or (tail.endswith(_CHUNK_ENDS) and (is_cut or _ends_with_chunk(tail)))


def _ends_with_chunk(body: bytes) -> bool:
    """Whether a chunked body, given from its start, ends with a whole chunk."""
    at = 0
    while at < len(body):
        end = body.find(b"\r\n", at)
        size = _read_size(body[at:end]) if end >= 0 else None
        if size is None:
            return False
        at = end + 2 + size + 2
    return at == len(body)


def _read_size(line: bytes) -> int | None:
    try:
        return int(line.partition(b";")[0], 16)
    except ValueError:
        return None
