"""How an attempt at an upstream can end, and what an upstream's status means for the next one.

Pure; read and tested without a socket.
"""

from collections.abc import Iterable
from enum import StrEnum


class Ended(StrEnum):
    """How an attempt, or the whole relay, came to its end."""

    COMPLETE = "complete"
    """The upstream's message arrived to its end and was passed on, whatever its status."""
    CLIENT_GONE = "client_gone"
    CONNECT_FAILED = "connect_failed"
    """Nothing was sent: refused, unreachable, or no connection in time."""
    CLOSED_EARLY = "closed_early"
    """The upstream closed a fresh connection before it answered."""
    BUSY = "busy"
    """429 or 503: the upstream is healthy and full. Back-pressure, never a reason to eject it."""
    SERVER_ERROR = "server_error"
    """500, 502 or 504 of an upstream, while there was another to ask."""
    UNAUTHORIZED = "unauthorized"
    """401 or 407, and of a foreign service 402 and 403: our key was not taken. It is our fault, and never shown to the
    client as its own."""
    MALFORMED = "malformed"
    """What the upstream said is not HTTP."""
    FIRST_BYTE_TIMEOUT = "first_byte_timeout"
    BETWEEN_BYTES_TIMEOUT = "between_bytes_timeout"
    UPSTREAM_BROKEN = "upstream_broken"
    """The upstream ended inside its message, after the head had been passed on."""
    NO_TARGET = "no_target"
    """The plan named no target at all."""


class Verdict(StrEnum):
    """What to do with a response whose head has arrived."""

    PASS = "pass"
    ELSEWHERE = "elsewhere"
    """Ask another target if the plan has one; otherwise pass this one on."""
    HIDE = "hide"
    """Ask another target; never pass this one on."""


_ELSEWHERE = {429: Ended.BUSY, 503: Ended.BUSY} | dict.fromkeys((500, 502, 504), Ended.SERVER_ERROR)


_FOREIGN_BUSY = frozenset({429, 503, 529})
"""529 is not registered; some services say by it that they are overloaded."""


def read_retry_after(headers: Iterable[tuple[bytes, bytes]]) -> float | None:
    """Seconds that a `Retry-After` asks for; None where there is none, or it is a date: clocks differ."""
    for name, value in headers:
        if name.lower() == b"retry-after":
            digits = value.strip()
            return float(digits) if digits.isdigit() and len(digits) <= 9 else None
    return None


def classify_status(status: int, *, is_foreign: bool = False) -> tuple[Verdict, Ended]:
    """What an upstream's status means. Other 4xx are the client's own doing and go to it.

    Somebody else's service says of our account with it, and of itself, what no client of ours need know: of its
    refusals only those of the request itself are passed on.
    """
    if is_foreign:
        return _classify_foreign(status)
    if status in (401, 407):
        return Verdict.HIDE, Ended.UNAUTHORIZED
    ended = _ELSEWHERE.get(status)
    return (Verdict.PASS, Ended.COMPLETE) if ended is None else (Verdict.ELSEWHERE, ended)


def _classify_foreign(status: int) -> tuple[Verdict, Ended]:
    if status in (401, 402, 403, 407):
        return Verdict.HIDE, Ended.UNAUTHORIZED
    if status in _FOREIGN_BUSY:
        return Verdict.HIDE, Ended.BUSY
    # A redirection is where nobody who was asked for an answer should send anybody, and our key goes to no other host.
    if status >= 500 or 300 <= status < 400:
        return Verdict.HIDE, Ended.SERVER_ERROR
    return Verdict.PASS, Ended.COMPLETE
