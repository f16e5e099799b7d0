"""Carrying out a routing decision: one request over its targets in order, counted and logged at its end.

`InferencePlan` is what `core.http.splice` asks while it relays: the next target, the headers to add, and whom to
tell. Between the head of an answer and its end no code in here runs, unless the client needs another name for the
model than the engine has (`gateway/renamed.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from time import monotonic

from core.api import RouteTarget
from core.caller import caller_lines
from core.http.patience import EventDialect
from core.http.plan import Attempt, Progress, RelayOutcome, RelayPlan
from core.http.pool import Target
from core.http.trim import Unwanted
from core.http.verdict import Ended
from gateway.ending import Endings, RequestRecord
from gateway.errors import ApiError, stream_error_event
from gateway.key_limits import KeyLimiter
from gateway.late_errors import find_dialect
from gateway.loads import Loads
from gateway.router import Order, Why
from gateway.state import Routes, RouteState, Upstream
from gateway.target_health import TargetHealth
from gateway.tracing.tracing import Tracing
from gateway.usage.account import Accountant
from gateway.usage.asking import USAGE_EVENTS, ask_for_usage, is_asked, may_be_asked

MAX_ATTEMPTS = 4
"""Targets that one request may be sent to; one that cannot even be connected to was sent nothing."""

_AFTER_THE_HEAD = frozenset({Ended.UPSTREAM_BROKEN, Ended.BETWEEN_BYTES_TIMEOUT})
"""Failures after which no other target is asked for."""

_NOTHING: frozenset[bytes] = frozenset()

_BUSY_S = 2.0
_LONGEST_BUSY_S = 3600
_BROKEN_EVENT = stream_error_event("upstream_broken", "The answer broke off: the engine ended before its end.")


@dataclass(frozen=True, slots=True)
class Dispatcher:
    """What every relay of a worker shares."""

    state: RouteState
    loads: Loads
    endings: Endings
    accountant: Accountant
    limiter: KeyLimiter
    tracing: Tracing


class InferencePlan(RelayPlan):
    """One request's way over its targets. It comes with a slot of the first; whoever makes it must `close` it."""

    __slots__ = (
        "_candidates", "_dispatcher", "_doubts", "_is_adapter", "_has_slot", "_held", "_next", "_probed", "_sent",
        "_unit", "_upstreams", "between_bytes_timeout_s", "edits_body", "first_byte_timeout_s", "is_short", "path",
        "progress", "record", "says", "why",
    )  # fmt: skip

    error_event = _BROKEN_EVENT

    def __init__(  # noqa: PLR0913 - the parts of a request, made in one place
        self, dispatcher: Dispatcher, upstreams: Mapping[str, Upstream], order: Order, record: RequestRecord, unit: int,
        is_adapter: bool, path: bytes = b"",
    ) -> None:  # fmt: skip
        """`is_adapter`: the model is one, so that a stay of it goes with each slot."""
        self.path = path
        self._dispatcher = dispatcher
        self._upstreams = upstreams
        self._candidates = order.targets
        self.why = order.why
        """Why the first target is the first."""
        self._next = 0
        self._sent = 0
        """Attempts that were more than a connect."""
        self._doubts: int | None = None
        """The mark of a target that has failed, when this request was sent there: an answer ends what it stands for."""
        self._probed: TargetHealth | None = None
        """Whom this request, as the only one, finds out about."""
        self._unit = unit
        self._has_slot = True
        """Of the first candidate, taken before this was made and not used yet."""
        self._is_adapter = is_adapter
        if is_adapter:
            self._enter(upstreams[order.targets[0].id])
        self._held: list[Upstream] = []
        self.is_short = False
        """Whether there was another target to ask, and no slot free at it."""
        self.record = record
        record.why = order.why
        self.says = record.trace.says if record.trace is not None else _NOTHING
        self.edits_body = record.stream and may_be_asked(record)
        self.progress: Progress | None = None
        """How the relay stands, while it does."""

    @property
    def is_streamed(self) -> bool:
        return self.record.stream

    def events(self) -> EventDialect | None:
        return find_dialect(self.record)

    def begun(self, progress: Progress) -> None:
        self.progress = progress
        if self.record.trace is not None:
            self.record.trace.relayed_s = monotonic()

    def next_target(self, failed: Attempt | None) -> Target | None:
        if failed is not None:
            self._blame(failed)
        if self._has_slot:
            self._has_slot = False
            self._next = 1
            upstream = self._upstreams[self._candidates[0].id]
            if self.why is Why.PROBE:
                self._probed = upstream.load.health
        else:
            following = self._find_next()
            if following is None:
                return None
            upstream = following
        self.first_byte_timeout_s = upstream.first_byte_timeout_s
        self.between_bytes_timeout_s = upstream.between_bytes_timeout_s
        health = upstream.load.health
        if health.is_doubted and health.is_failing:
            self._doubts = health.mark
        upstream.load.begin(self)
        self._held.append(upstream)
        if self.record.trace is not None:
            self.record.trace.ask(upstream.target)
        return upstream.target

    def _blame(self, failed: Attempt) -> None:
        """The target failed this request, and another may be asked."""
        if failed.ended is not Ended.CONNECT_FAILED:
            self._sent += 1
        self._doubts = None
        load = self._dispatcher.loads.find(failed.target.name)
        if load is not None:
            load.health.failed(failed.ended, failed.retry_after_s, detail=failed.detail, status=failed.status)
            self._end_probe(load.health)

    def _end_probe(self, health: TargetHealth) -> None:
        if self._probed is health:
            self._probed = None
            health.end_probe()

    def _find_next(self) -> Upstream | None:
        """The next candidate with a free slot, by the routes of this moment: much may have changed since the first."""
        routes = self._dispatcher.state.routes
        while routes is not None and self._next < len(self._candidates) and self._sent < MAX_ATTEMPTS:
            target_id = self._candidates[self._next].id
            self._next += 1
            upstream = routes.upstreams.get(target_id)
            if upstream is None or not upstream.is_ready or not self._is_loaded(routes, target_id):
                continue
            if upstream.load.slots.try_take(self._unit):
                self._upstreams = routes.upstreams
                if self._is_adapter:
                    self._enter(upstream)
                return upstream
            self.is_short = True
        return None

    def _is_loaded(self, routes: Routes, target_id: str) -> bool:
        """Whether the target has the model's adapter now, where it needs one."""
        if not self._is_adapter:
            return True
        entry = routes.lookup.models.get(self.record.served)
        return entry is not None and any(target.id == target_id and target.is_usable for target in entry.model.targets)

    @property
    def was_used(self) -> bool:
        """Whether a target was ever named: then `ended` tells the end, and nobody else does."""
        return not self._has_slot

    def close(self) -> None:
        """Give back a slot that was never used."""
        if self._has_slot:
            self._has_slot = False
            upstream = self._upstreams[self._candidates[0].id]
            load = upstream.load
            load.slots.release(self._unit)
            if self._is_adapter:
                self._leave(upstream)
            if self.why is Why.PROBE:
                load.health.end_probe()

    @property
    def asked(self) -> str:
        """The target that works on the request now; empty: none."""
        return self._held[-1].target.name if self._held else ""

    @property
    def current(self) -> RouteTarget:
        """The target that `next_target` named last."""
        return self._candidates[self._next - 1]

    def request_body(self, target: Target, body: bytes) -> bytes:
        if not is_asked(self.record, self._route(target)):
            return body
        return ask_for_usage(body, has_options=self.record.has_stream_options)

    def unwanted(self, target: Target) -> Unwanted | None:
        return USAGE_EVENTS if is_asked(self.record, self._route(target)) else None

    def _route(self, target: Target) -> RouteTarget:
        return next(candidate for candidate in self._candidates if candidate.id == target.name)

    def request_lines(self) -> bytes:
        record = self.record
        lines = b"" if record.trace is None else record.trace.line
        if not self._candidates[self._next - 1].tells_callers_apart:
            return lines
        return lines + caller_lines(record.key, record.request_id)

    def response_headers(self, target: Target) -> bytes:
        record = self.record
        record.target = target.name
        if self._doubts is not None:
            self._settle_doubts(target)
        lines = b"x-request-id: " + record.request_id.encode() + b"\r\n" + self._upstreams[target.name].header
        return lines if record.place is None else lines + record.place.header_lines()

    def _settle_doubts(self, target: Target) -> None:
        """The head of its answer is here: whoever waited for that need not wait for the end of it."""
        status = self.progress.status if self.progress is not None else None
        health = self._upstreams[target.name].load.health
        if status is not None and status < 500 and self._doubts is not None:
            health.worked(self._doubts)
            self._doubts = None
            self._end_probe(health)

    def ended(self, outcome: RelayOutcome) -> None:
        # A target that was named for a retry which the client did not wait for was never asked.
        for upstream in self._held:
            self._end(upstream)
            self._end_probe(upstream.load.health)
        self._held.clear()
        self.progress = None
        record = self.record
        record.ended = outcome.ended
        if outcome.target is not None:
            record.target = outcome.target.name
        record.attempts = len(outcome.attempts)
        record.size_bytes = outcome.size_bytes
        record.first_byte_s = outcome.first_byte_s or 0.0
        record.first_data_s = outcome.first_data_s or 0.0
        record.relay_s = outcome.total_s
        if outcome.status is not None or outcome.ended is Ended.CLIENT_GONE:
            record.status = outcome.status or 0
            self._dispatcher.accountant.fill(record, outcome)
            self._dispatcher.endings.tell(record)
        else:
            self._unanswered()

    def _unanswered(self) -> None:
        """No target gave an answer; whoever made this plan tells the end, or begins anew."""

    def _end(self, upstream: Upstream) -> None:
        upstream.load.end(self, self._unit)
        if self._is_adapter:
            self._leave(upstream)

    def _enter(self, upstream: Upstream) -> None:
        adapter = self._route(upstream.target).adapter
        if adapter:
            upstream.load.enter(adapter)

    def _leave(self, upstream: Upstream) -> None:
        adapter = self._route(upstream.target).adapter
        if adapter:
            upstream.load.leave(adapter)

    def attempt_ended(self, attempt: Attempt) -> None:
        if self.record.trace is not None:
            self.record.trace.over(attempt)
        for upstream in self._held:
            if upstream.target is attempt.target:
                self._held.remove(upstream)
                load = upstream.load
                self._end(upstream)
                if attempt.ended in _AFTER_THE_HEAD:
                    load.health.failed(attempt.ended, detail=attempt.detail)
                elif load.health.is_doubted and attempt.ended is Ended.COMPLETE and (attempt.status or 500) < 500:
                    load.health.worked(self._doubts or 0)
                if self._probed is not None:
                    self._end_probe(load.health)
                return


class DirectPlan(InferencePlan):
    """One that is relayed without a task (`gateway.fastlane`)."""

    __slots__ = ()

    def _unanswered(self) -> None:
        place = self.record.place
        if place is None:
            return
        # Nobody is bound to come and tell this end: the client may be gone before the application is asked.
        if self.is_short:
            place.undo()
        else:
            place.release()


def explain_failure(outcome: RelayOutcome, model: str) -> ApiError:
    """Why no target answered, as the client hears it. It names the model and never a host. Pure."""
    kind = "backend" if outcome.target is not None and outcome.target.is_foreign else "engine"
    who = f"The {kind} of the model"
    if outcome.ended is Ended.UNAUTHORIZED:
        message = f"{who} '{model}' did not accept the gateway's own key."
        return ApiError(502, "upstream_unauthorized", message, model=model)
    if outcome.ended is Ended.BUSY:
        last = outcome.attempts[-1] if outcome.attempts else None
        wait_s = min(ceil((last.retry_after_s if last is not None else None) or _BUSY_S), _LONGEST_BUSY_S)
        status = 429 if last is not None and last.status == 429 else 503
        return ApiError(status, "upstream_busy", f"{who} '{model}' is busy.", model=model, retry_after_s=wait_s)
    if outcome.ended in (Ended.FIRST_BYTE_TIMEOUT, Ended.BETWEEN_BYTES_TIMEOUT):
        return ApiError(504, "upstream_timed_out", f"{who} '{model}' did not answer in time.", model=model)
    if outcome.ended is Ended.CONNECT_FAILED:
        message = f"No {kind} of the model '{model}' can be reached now."
        return ApiError(502, "upstream_unreachable", message, model=model, retry_after_s=2)
    message = f"{who} '{model}' {'failed' if outcome.ended is Ended.SERVER_ERROR else 'ended before it answered'}."
    return ApiError(502, "upstream_failed", message, model=model, retry_after_s=2)
