"""What one client or one upstream may cost: sizes in bytes, times in seconds.

There is no limit on the total time of an answer: a stream may run for days. What is bounded is everything that
lets somebody hold memory or a connection without making progress.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Limits of the server's side."""

    head_bytes: int = 64 << 10
    head_fields: int = 128
    body_bytes: int = 64 << 20
    form_bytes: int = 512 << 20
    """Of a body that the application reads while it arrives (`core.http.incoming`)."""
    head_timeout_s: float = 30.0
    """From a request's first byte to the end of its head."""
    body_timeout_s: float = 60.0
    """Grace for a body, beyond the time that it would take at `body_rate_bytes` a second."""
    body_rate_bytes: int = 8 << 10
    idle_timeout_s: float = 620.0
    """Between two requests; longer than the 600 s for which big load balancers keep their own side open,
    so that it is always they who close and no request meets a closing connection."""
    stall_timeout_s: float = 60.0
    """How long a client may take not one byte of what waits for it."""
    linger_s: float = 5.0
    """After a refusal, how long what the client still sends is read and thrown away, so that our closing does
    not reset the connection before the refusal is read."""
    pipeline_bytes: int = 256 << 10
    """Unparsed bytes kept while an earlier request of the connection is being answered."""
    pipeline_requests: int = 1000
    comment_s: float = 13.0
    """How long a client that asked for server-sent events hears nothing before it gets a comment. With the sweep's
    precision, twice, two comments are never more than 15 s apart."""
    message_bytes: int = 64 << 10
    """Of one message of a client on a websocket."""
    ping_s: float = 20.0
    """How long a websocket's client says nothing before it is pinged."""
    pong_s: float = 60.0
    """How long it may say nothing at all."""
    sweep_s: float = 1.0
    """How often deadlines are looked at: they are kept to this precision."""


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """Limits of the upstream side."""

    connect_timeout_s: float = 5.0
    idle_timeout_s: float = 55.0
    idle_per_target: int = 512
    head_bytes: int = 64 << 10
    receive_buffer_bytes: int = 256 << 10
    """SO_RCVBUF. The kernel would grow it to 32 MB for one slow client; the engine must be held back instead."""
    queue_bytes: int = 256 << 10
    """Decoded body waiting for the reader of an `Exchange` before the upstream is paused."""
    sweep_s: float = 1.0


DEFAULT_LIMITS = HttpLimits()
DEFAULT_POOL_LIMITS = PoolLimits()
