"""Carrying out a routing decision: one request over its targets in order, counted and logged at its end.

`InferencePlan` is what `core.http.splice` asks while it relays: the next target, the headers to add, and whom to
tell. Between the head of an answer and its end no code in here runs, unless the client needs another name for the
model than the engine has (`gateway/renamed.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic

from core.api import RouteTarget
from core.http.plan import Attempt, RelayOutcome, RelayPlan
from core.http.pool import Target, UpstreamPool
from core.http.verdict import Ended
from core.log import EventLogger
from gateway.errors import ApiError, stream_error_event
from gateway.loads import Loads
from gateway.request_log import RequestRecord, log_request
from gateway.state import Routes

MAX_ATTEMPTS = 4
"""Targets that one request may be sent to."""

_HOLD_AGAINST = frozenset(
    {Ended.CONNECT_FAILED, Ended.CLOSED_EARLY, Ended.SERVER_ERROR, Ended.MALFORMED, Ended.FIRST_BYTE_TIMEOUT}
)
"""Endings after which a target comes last for a while. Being full, and a client's own mistakes, are not among them."""

_BROKEN_EVENT = stream_error_event("upstream_broken", "The answer broke off: the engine ended before its end.")


@dataclass(frozen=True, slots=True)
class Dispatcher:
    """What every relay of a worker shares."""

    pool: UpstreamPool
    loads: Loads
    log: EventLogger

    def connect(self, routes: Routes, target: RouteTarget) -> Target:
        """The pool's target for one of the table's. Cheap: the same words give the same object."""
        key = routes.upstream_keys.get(target.key_file)
        return self.pool.target(target.id, target.host, target.port, key.reveal() if key else "")


class InferencePlan(RelayPlan):
    """One request's way over its targets."""

    __slots__ = ("_candidates", "_dispatcher", "_held", "_next", "_routes", "record")

    error_event = _BROKEN_EVENT

    def __init__(
        self, dispatcher: Dispatcher, routes: Routes, candidates: Sequence[RouteTarget], record: RequestRecord
    ) -> None:
        self._dispatcher = dispatcher
        self._routes = routes
        self._candidates = candidates[:MAX_ATTEMPTS]
        self._next = 0
        self._held: list[str] = []
        self.record = record

    def next_target(self, failed: Attempt | None) -> Target | None:
        if failed is not None and failed.ended in _HOLD_AGAINST:
            self._dispatcher.loads.failed(failed.target.name)
        if self._next >= len(self._candidates):
            return None
        chosen = self._candidates[self._next]
        self._next += 1
        self._dispatcher.loads.begin(chosen.id)
        self._held.append(chosen.id)
        return self._dispatcher.connect(self._routes, chosen)

    @property
    def current(self) -> RouteTarget:
        """The target that `next_target` named last."""
        return self._candidates[self._next - 1]

    def response_headers(self, target: Target) -> bytes:
        self.record.target = target.name
        return b"x-request-id: %b\r\nx-llmgw-target: %b\r\n" % (
            self.record.request_id.encode("ascii"),
            header_safe(target.name),
        )

    def attempt_ended(self, attempt: Attempt) -> None:
        self._release(attempt.target.name)
        if attempt.ended is Ended.COMPLETE:
            self._dispatcher.loads.worked(attempt.target.name)

    def ended(self, outcome: RelayOutcome) -> None:
        # A target that was named for a retry which the client did not wait for was never asked.
        for target_id in list(self._held):
            self._release(target_id)
        record = self.record
        record.ended = outcome.ended
        record.attempts = len(outcome.attempts)
        record.size_bytes = outcome.size_bytes
        record.first_byte_s = outcome.first_byte_s or 0.0
        if outcome.status is not None or outcome.ended is Ended.CLIENT_GONE:
            record.status = outcome.status or 0
            log_request(self._dispatcher.log, record, monotonic())

    def _release(self, target_id: str) -> None:
        if target_id in self._held:
            self._held.remove(target_id)
            self._dispatcher.loads.end(target_id)


def header_safe(text: str) -> bytes:
    """A name as a header's value: nothing in it can end the line."""
    return text.encode("ascii", "replace") if text.isprintable() else b"?"


def explain_failure(outcome: RelayOutcome, model: str) -> ApiError:
    """Why no target answered, as the client hears it. It names the model and never a host. Pure."""
    if outcome.ended is Ended.UNAUTHORIZED:
        message = f"The engine of the model '{model}' did not accept the gateway's own key."
        return ApiError(502, "upstream_unauthorized", message, model=model)
    if outcome.ended in (Ended.FIRST_BYTE_TIMEOUT, Ended.BETWEEN_BYTES_TIMEOUT):
        return ApiError(
            504, "upstream_timed_out", f"The engine of the model '{model}' did not answer in time.", model=model
        )
    if outcome.ended is Ended.CONNECT_FAILED:
        message = f"No engine of the model '{model}' can be reached now."
        return ApiError(502, "upstream_unreachable", message, model=model, retry_after_s=2)
    message = f"The engine of the model '{model}' ended before it answered."
    return ApiError(502, "upstream_failed", message, model=model, retry_after_s=2)
