"""What a relay is told and what it tells: the plan of the application, attempts, and the outcome.

The application subclasses `RelayPlan`, one object per request, and gives it to `ClientStream.relay`. All its
methods are called on the event loop and must not block. Structs, because a frozen dataclass costs ten times as much
to make, and two are made for each request.
"""

from typing import Protocol

import msgspec

from core.http.asgi import Headers
from core.http.patience import EventDialect
from core.http.pool import Target
from core.http.trim import Unwanted
from core.http.verdict import Ended


class Attempt(msgspec.Struct, frozen=True):
    """One target's part in a relay, over when the connection to it was given back or closed."""

    target: Target
    ended: Ended
    status: int | None = None
    detail: str = ""
    retry_after_s: float | None = None
    """What an upstream that is full said of when to come back."""


class Refusal(msgspec.Struct, frozen=True):
    """An upstream's answer of 400 or more that was read instead of passed on (`RelayPlan.reads_refusals`)."""

    status: int
    headers: Headers
    body: bytes
    """Without framing; cut where it was too long to be the explanation of an error."""


class RelayOutcome(msgspec.Struct, frozen=True):
    """The whole relay, for accounting, metrics and the log line."""

    ended: Ended
    status: int | None
    """What the client was told; None when the head of no response was passed on."""
    size_bytes: int
    """Of the body as it came from the upstream, chunk framing included."""
    first_byte_s: float | None
    """From the start of the relay to the head of the response."""
    total_s: float
    tail: bytes
    """The body's last bytes, at least 1 KiB where there were so many; a stream's usage stands there."""
    target: Target | None
    attempts: tuple[Attempt, ...]
    refusal: Refusal | None = None
    """What the last upstream said, where no head was passed on and the plan wants to know."""
    begin: bytes = b""
    """The body's first bytes, up to 1 KiB; empty where `tail` is the whole body."""
    was_sent: bool = True
    """Whether any upstream got the request."""
    first_data_s: float | None = None
    """From the start of the relay to the first byte of the body; some engines send a stream's head long before."""


class Progress(Protocol):
    """A look at a relay while it runs; costs the relay nothing."""

    @property
    def status(self) -> int | None:
        """Of the answer; None before there is one."""

    @property
    def size_bytes(self) -> int:
        """Of the body, so far."""

    @property
    def is_held_back(self) -> bool:
        """Whether it is the client who is slow, and the upstream is paused for it."""


class RelayPlan:
    """Base class of what an application wants from a relay. A slotted object costs least."""

    __slots__ = ()

    path: bytes = b""
    """What the upstream is asked, query included; empty: what the client asked."""
    error_event: bytes = b""
    """An SSE event (`data: …\\n\\n`) that tells the client of a stream that it broke. Never a terminator."""
    reads_refusals: bool = False
    """Whether an upstream's answer of 400 and more is read and told in the outcome, for who says it in other words."""
    says: frozenset[bytes] = frozenset()
    """Fields of the client's request (in lower case) that no upstream sees: `request_lines` says them anew, or not."""
    edits_body: bool = False
    """Whether `request_body` is to be asked."""
    first_byte_timeout_s: float | None = None
    """From the request's last byte to the head of the response; None: as long as it takes."""
    between_bytes_timeout_s: float | None = None

    def request_lines(self) -> bytes:
        """Header lines to add to the request to the target that `next_target` named last, each ended by CR LF."""
        return b""

    def events(self) -> EventDialect | None:
        """Who speaks to a client that asked for server-sent events while its upstream is silent; None: it did not ask.

        Called only when there is silence.
        """
        return None

    def begun(self, progress: Progress) -> None:
        """Called once, before anything else."""

    def next_target(self, failed: Attempt | None) -> Target | None:
        """The target to ask, or None when there is no other. `failed` is the attempt before; None at first."""
        return None

    def request_body(self, target: Target, body: bytes) -> bytes:
        """What this target is sent instead of `body`."""
        return body

    def unwanted(self, target: Target) -> Unwanted | None:
        """What is left out of this target's answer, when that is a stream of events."""
        return None

    def response_headers(self, target: Target) -> bytes:
        """Header lines to add to the response, each ended by CR LF."""
        return b""

    def attempt_ended(self, attempt: Attempt) -> None:
        """The connection of an attempt was let go: the target works on this request no longer."""

    def ended(self, outcome: RelayOutcome) -> None:
        """The relay is over; called once, after the last `attempt_ended`."""
