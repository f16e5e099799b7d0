"""How a job is followed while its request is under way.

The runner puts a `Ticket` into the scope of the request that it makes; a route that finds one may tell how far the
work is (`tell`), and the inference routes tell who works on it (`follow`). A client's own request never has one.
"""

import time
from typing import Protocol

from core.http.asgi import Scope

TICKET = "llmgw.job"


class Asked(Protocol):
    """A request on its way (`gateway.relay.InferencePlan`)."""

    @property
    def asked(self) -> str:
        """The target that works on it now; empty: none."""


class Ticket:
    """One job's."""

    def __init__(self) -> None:
        self.step = ""
        self.percent: float | None = None
        self.started_s: float | None = None
        """When it was sent to an engine the last time."""
        self._plan: Asked | None = None

    def follow(self, plan: Asked) -> None:
        """From now on this is the request's way."""
        self._plan = plan
        self.started_s = time.time()

    def tell(self, step: str, percent: float | None = None) -> None:
        """What is being done now, and how much of it is done, where that is known."""
        self.step = step
        self.percent = None if percent is None else min(max(percent, 0.0), 100.0)

    @property
    def target(self) -> str:
        """The target that works on it; empty: it still waits."""
        return self._plan.asked if self._plan is not None else ""


def find_ticket(scope: Scope) -> Ticket | None:
    """The job's, where the request is one's."""
    ticket = scope.get(TICKET)
    return ticket if isinstance(ticket, Ticket) else None
