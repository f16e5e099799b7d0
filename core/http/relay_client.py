"""What a relay needs of the client's side (`core.http.stream.ClientStream`). No properties: each use costs a call."""

import asyncio
from typing import Protocol

from core.http.plan import RelayOutcome
from core.http.repeat import RememberedRequest


class ClientConnection(Protocol):
    """The way to the client, and how it stands."""

    transport: asyncio.Transport | None
    is_paused: bool
    is_draining: bool


class Client(Protocol):
    """Who asks."""

    method: bytes
    version: str
    keep_alive: bool
    added: bytes
    """Header lines for the answer."""
    has_begun: bool
    """Whether the client has got the head of an event stream already (`core.http.patience`)."""
    remembered: RememberedRequest | None

    @property
    def connection(self) -> ClientConnection: ...

    def upstream_lines(self, without: frozenset[bytes]) -> bytes:
        """What of its request's fields an upstream sees, less these."""

    def relay_settled(self, outcome: RelayOutcome | None) -> None:
        """Called once: None when the head of a response was passed on or the client left; else why there is none."""

    def finish(self, *, clean: bool, reset: bool) -> None:
        """Called once, when the rest of a response was passed on, or will never be."""
