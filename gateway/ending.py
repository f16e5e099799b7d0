"""The end of a request: all that is known of it by then, and who hears of it.

One record per inference request, filled in as it goes, and told once: when the engine's side has really ended, or
when the request was refused. The log, the metering and whatever else counts requests listen here, and nowhere else. A
listener must not raise, block or change the record, and what it does is part of what every request costs.
"""

from time import monotonic
from typing import Protocol

import msgspec

from gateway.tracing.trace import Trace


class HeldPlace(Protocol):
    """A place among what the request's key may have (`gateway.key_limits.KeyUse`)."""

    def header_lines(self) -> bytes: ...

    def charge(self, tokens: int, second: int) -> None: ...

    def release(self) -> None: ...

    def undo(self) -> None: ...


class RequestRecord(msgspec.Struct):
    """What is known of a request. A struct, because it costs a quarter of a dataclass to make."""

    request_id: str
    path: str
    started_s: float
    """Monotonic, as `ended_s`."""
    model: str = ""
    """As the client wrote it, cut to a sane length: any text at all."""
    served: str = ""
    """The id of the model that it means; empty while it is not known to be one of ours."""
    client: str = ""
    """Its address, as far as it can be trusted (`gateway.client_address`); empty: a unix socket."""
    key: str = ""
    """The key's name, never the key; empty: open access."""
    request_bytes: int = 0
    """Of the request's body."""
    stream: bool = False
    wants_usage: bool = False
    """The client asked for the usage of its stream, and will see it."""
    has_stream_options: bool = False
    """The request has some, whatever they say."""
    target: str = ""
    """Whose answer the client got, or who was asked last; empty: nobody was."""
    attempts: int = 0
    status: int = 0
    """What the client was told; 0: it left before that."""
    size_bytes: int = 0
    """Of the answer's body."""
    first_byte_s: float = 0.0
    """From the request to the head of its answer, without the time in the queue."""
    first_data_s: float = 0.0
    """Likewise to the first byte of its body; 0: there was none."""
    relay_s: float = 0.0
    """Likewise to its end."""
    why: str = ""
    """Why the first target was the first: a `gateway.router.Why`; empty: none was chosen."""
    queued_s: float = 0.0
    """Waited for a slot."""
    ended: str = "complete"
    """A `core.http.verdict.Ended`, or `refused`."""
    ended_s: float = 0.0
    code: str = ""
    """Of the error that the gateway answered."""
    prompt_tokens: int = 0
    """All that the engine read, cached ones included."""
    cached_tokens: int = 0
    """Of those, what the engine says that it had in its cache."""
    completion_tokens: int = 0
    place: HeldPlace | None = None
    """Of a key that has limits."""
    trace: Trace | None = None
    """Where requests are traced."""
    is_estimated: bool = False
    """The engine did not say how many tokens these were, or not all of it."""

    @property
    def is_cut_short(self) -> bool:
        """An engine was asked for it, and it came to no end: the client left, or the answer broke off."""
        if not self.target or self.ended == "complete":
            return False
        return self.ended == "client_gone" or 200 <= self.status < 400


class Listener(Protocol):
    """Who hears of the end of every request."""

    def request_ended(self, record: RequestRecord) -> None: ...


class Endings:
    """Tells the listeners, in their order; `of_marked` only of requests that hold a place or are traced."""

    def __init__(self, *listeners: Listener, of_marked: tuple[Listener, ...] = ()) -> None:
        self._listeners = listeners
        self._of_marked = of_marked

    def tell(self, record: RequestRecord) -> None:
        """The request is over. What is told a second time is not heard: one that leaves may end twice."""
        if record.ended_s:
            return
        record.ended_s = monotonic()
        for listener in self._listeners:
            listener.request_ended(record)
        if record.place is not None or record.trace is not None:
            for listener in self._of_marked:
                listener.request_ended(record)
