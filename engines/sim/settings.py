"""What the simulated engine can be told, at its start and in a request's `sim` object. Pure: types and defaults.

`Behaviour` is what one request meets; `Settings` is the process. The adapter makes flags of `OPTIONS`; a request may
carry `"sim": {"firstTokenS": 0.5, "fault": "half-close"}` in its body, which overrides the defaults for itself alone.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Fault = Literal["none", "hang", "error", "half-close", "reset", "no-usage", "garbage", "crash"]
FAULTS: tuple[str, ...] = ("none", "hang", "error", "half-close", "reset", "no-usage", "garbage", "crash")
"""What a request can meet:

`hang` says nothing more, ever · `error` answers `status` before the first byte · `half-close` ends the stream after
`afterTokens` without its terminal chunk · `reset` breaks the connection there · `no-usage` leaves usage out · `garbage`
sends a chunk that is no JSON · `crash` ends the process there by SIGSEGV.
"""

Seconds = Annotated[float, Meta(ge=0, le=86400)]


class ScriptedCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tool call that an answer makes after its text."""

    name: str
    arguments: str = "{}"


class Behaviour(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What one request meets."""

    first_token_s: Seconds = 0.0
    tokens_per_s: Annotated[float, Meta(ge=0)] = 0.0
    """0: as fast as they can be written."""
    tokens: Annotated[int, Meta(ge=0, le=1_000_000)] = 16
    """How many tokens an answer has, at most `max_tokens`."""
    thinks: Annotated[int, Meta(ge=0)] = 0
    """How many of the tokens, from the first, are thoughts (`reasoning_content`)."""
    calls: tuple[ScriptedCall, ...] = ()
    fault: Fault = "none"
    after_tokens: Annotated[int, Meta(ge=0)] = 0
    """Where a fault strikes: after so many tokens."""
    status: Annotated[int, Meta(ge=400, le=599)] = 500
    """What `error` answers."""


class Meeting(msgspec.Struct, frozen=True, kw_only=True):
    """Several processes that serve one model together, and this one's place among them."""

    rank: int
    """0 is the head: it alone serves."""
    size: int
    address: str
    """Where the head listens for the others."""
    port: int
    own_address: str = ""
    """Which of this machine's addresses a worker comes from; empty: the kernel chooses."""
    timeout_s: float = 60.0
    """How long to wait for the others, and for the head."""
    join_delay_s: float = 0.0
    """How late this rank comes."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The process: where it listens, whom it serves, and how it misbehaves as a whole."""

    host: str = "127.0.0.1"
    port: int = 0
    """0: one that the kernel chooses; the first line of stderr says which."""
    models: tuple[str, ...] = ("sim",)
    keys: tuple[str, ...] = ()
    """Without keys everybody is served."""
    context_length: int = 4096
    slots: int = 4
    """Requests that compute at once; more wait their turn."""
    queue: int = 1024
    """Requests that may wait; more are answered 429."""
    load_time_s: float = 0.0
    health_delay_s: float = 0.0
    """How long `/health` thinks before it answers."""
    health_status: int = 200
    """What `/health` answers once loaded."""
    crash_after: int = 0
    """Die by SIGSEGV when this many requests were answered; 0 never."""
    refuse_start: bool = False
    """Say why and exit with 1, as an engine does with a broken file."""
    ballast_mib: int = 0
    """Memory to hold, written so that it is resident."""
    fork_child: bool = False
    """Leave a child in a session of its own that lives on when this process is killed."""
    ignore_term: bool = False
    """Go on at SIGTERM."""
    meeting: Meeting | None = None
    """Set when it is one of several."""
    behaviour: Behaviour = Behaviour()
