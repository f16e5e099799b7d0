"""`POST /v1/chat/completions`, `/v1/completions`, `/v1/embeddings`: authenticate, decode, choose, relay.

One resource serves all three, because they differ in nothing that the gateway reads. The client leaving at any
moment closes the engine's request, streaming or not; that is the relay's doing (`core.http.splice`).
"""

import asyncio
from dataclasses import dataclass
from time import monotonic

from falcon import MEDIA_JSON
from falcon.asgi import Request, Response

from core.api import RouteTarget
from core.http.asgi import SPLICE_EXTENSION, Scope
from core.http.plan import Refusal, RelayOutcome
from core.http.pool import Target
from core.http.stream import ClientStream
from gateway.boundary import speaks_anthropic, write_error
from gateway.choice import Choice
from gateway.decode import check_content, read_asked
from gateway.ending import RequestRecord
from gateway.errors import ApiError, cut
from gateway.grant import Grant
from gateway.guard import Guard
from gateway.incoming import read_class, read_headers
from gateway.jobs.ticket import find_ticket
from gateway.late_errors import find_dialect
from gateway.limit_headers import ANTHROPIC, OPENAI
from gateway.lookup import find_model
from gateway.readiness import explain_unready, find_sleeping
from gateway.relay import DirectPlan, Dispatcher, InferencePlan, explain_failure
from gateway.renamed import RenamedAnswer
from gateway.request_log import RequestIds
from gateway.router import Order
from gateway.state import Routes
from gateway.table import ModelEntry
from gateway.tracing.trace import Trace
from gateway.turns import limits_of
from gateway.wake import Waker

MAX_BODY_BYTES = 64 << 20
_ROUNDS = 4
"""How often a request is begun anew because the targets that were left were busy."""

_KEPT = frozenset({b"retry-after"})
"""What a client may do with an engine's refusal; all else described its body."""

FAILURE = "llmgw.failure"
"""Where a scope carries the `RelayFailure` that the fast lane met: its request is answered and not asked again."""


TRACE = "llmgw.trace"
"""Where a scope carries the `Trace` of a request that the fast lane began and that is begun anew."""


@dataclass(frozen=True, slots=True)
class RelayFailure:
    """A request that no target answered."""

    record: RequestRecord
    error: ApiError
    refusal: Refusal | None = None
    """What an engine said instead, where it was read and not passed on."""


@dataclass(frozen=True, slots=True)
class HeadJudgement:
    """What follows from a request's head and the routes at its time."""

    routes: Routes
    grant: Grant
    request_id: bytes
    """As the client sent it; not judged yet."""
    unit: int
    """The request's class, as `gateway.turns` counts it."""
    client: str
    """Its address; empty: a unix socket."""


class Inference:
    """One inference path."""

    plan_type: type[InferencePlan] = InferencePlan

    def __init__(self, path: str, guard: Guard, choice: Choice, dispatcher: Dispatcher, waker: Waker) -> None:
        self.path = path
        self.raw_path = path.encode("ascii")
        """What engines are asked: our own words, so that no escape and no query of a client reaches one."""
        self._guard = guard
        self._choice = choice
        self._state = dispatcher.state
        self._dispatcher = dispatcher
        self._tracing = dispatcher.tracing
        self._waker = waker
        self._ids = RequestIds()
        self._words = ANTHROPIC if speaks_anthropic(path) else OPENAI

    async def on_post(self, req: Request, resp: Response) -> None:
        failure = req.scope.get(FAILURE)
        if isinstance(failure, RelayFailure):
            if failure.refusal is not None:
                self._pass_refusal(failure.record, failure.refusal, resp)
            else:
                self._refuse(resp, failure.record, failure.error)
            return
        fields = read_headers(req.scope["headers"])
        record = RequestRecord(self._ids.read_or_make(fields.get(b"x-request-id", b"")), self.path, monotonic())
        record.trace = find_trace(req.scope) or self._tracing.begin(req.scope["headers"])
        try:
            await self._serve(req, resp, fields, record)
        except ApiError as error:
            self._refuse(resp, record, error)
        except asyncio.CancelledError:
            # The client left while its model was being loaded: nobody is asked any more, but the line is owed.
            self._abandon(record)
            raise
        except Exception:
            if record.place is not None:
                record.place.release()
            raise

    def plan_relay(self, client: ClientStream) -> DirectPlan | None:
        """The whole decision for the usual request, without waiting for anything: a model that is ready.

        None for every other case, refusals included: `on_post` then goes through it again, and answers.
        """
        began_s = monotonic()
        try:
            head = self._judge_head(client)
            asked = read_asked(client.body)
            entry = find_model(head.routes.lookup, head.grant, asked.model or "")
        except ApiError:
            return None
        model = entry.model.id
        if not entry.ready[self.path] or entry.is_renamed or asked.model != model:
            return None
        request_id, size = self._ids.read_or_make(head.request_id), len(client.body)
        # At once, and by position: to write a field costs as much as a call.
        if asked.stream is True:
            record = RequestRecord(
                request_id, self.path, began_s, cut(model), model, head.client, head.grant.name, size, True,
                asked.wants_usage, asked.has_stream_options,
            )  # fmt: skip
        else:
            record = RequestRecord(
                request_id, self.path, began_s, cut(model), model, head.client, head.grant.name, size
            )
        if head.grant.limits is not None and not self._take_place(head.grant, record):
            return None
        order = self._choice.take_now(head.routes, entry, self.path, head.unit, client.body)
        if order is None:
            if record.place is not None:
                record.place.undo()
            return None
        if self._tracing.is_on:
            record.trace = self._tracing.begin(client.headers)
        return DirectPlan(
            self._dispatcher, head.routes.upstreams, order, record, head.unit, entry.is_adapter, self.raw_path
        )

    def _judge_head(self, client: ClientStream) -> HeadJudgement:
        """Who asks, and whether the body can be read. Raises: ApiError.

        A client that keeps its connection sends the same head again, byte for byte; while the routes are the same
        too, so is the judgement.
        """
        remembered = client.remembered
        if remembered is not None:
            known = remembered.note
            if isinstance(known, HeadJudgement) and self._guard.still_holds(known.routes, known.grant):
                return known
        fields = read_headers(client.headers)
        address = self._guard.address_of(client.client, client.headers)
        routes, grant = self._guard.admit_work(fields, address)
        check_content(fields.get(b"content-type", b""), fields.get(b"content-encoding", b""))
        judged = HeadJudgement(routes, grant, fields.get(b"x-request-id", b""), read_class(fields), address)
        if remembered is not None:
            remembered.note = judged
        return judged

    async def _serve(self, req: Request, resp: Response, fields: dict[bytes, bytes], record: RequestRecord) -> None:
        client = find_client(req.scope)
        peer = record.client = self._guard.address_of(req.scope.get("client"), req.scope["headers"])
        routes, grant = self._guard.admit_work(fields, peer)
        record.key = grant.name
        check_content(fields.get(b"content-type", b""), fields.get(b"content-encoding", b""))
        body = client.body if client is not None else await read_body(req)
        asked = self._read_asked(body, record)
        if grant.limits is not None:
            # What is refused anyway takes nothing.
            self._find(routes, grant, asked, record)
            record.place = self._dispatcher.limiter.take(grant, self._words)
        dialect = find_dialect(record)
        if client is not None and dialect is not None:
            client.expect_events(dialect)
        unit = read_class(fields)
        ticket = find_ticket(req.scope)
        for left in reversed(range(_ROUNDS)):
            plan, entry = await self._plan(asked, body, fields, peer, unit, record)
            if ticket is not None:
                ticket.follow(plan)
            try:
                outcome = await self._answer(plan, entry, asked, body, req, resp)
            finally:
                plan.close()
            if outcome is None:
                if not plan.was_used:
                    self._abandon(record)
                return
            if outcome.refusal is not None and outcome.target is not None:
                _add_headers(resp, plan, outcome.target)
                self._pass_refusal(record, outcome.refusal, resp)
                return
            if not left or not (plan.is_short or await self._wake_another(entry, asked)):
                raise explain_failure(outcome, record.model)

    async def _answer(
        self, plan: InferencePlan, entry: ModelEntry, asked: str, body: bytes, req: Request, resp: Response
    ) -> RelayOutcome | None:
        """Answer by the plan; an outcome says why no target did. Raises: ApiError."""
        client = find_client(req.scope)
        if client is None or entry.is_renamed or asked != entry.model.id:
            return await RenamedAnswer(plan, entry, asked, body).respond(req, resp, self.raw_path)
        return await client.relay(plan, path=self.raw_path)

    async def _plan(
        self, asked: str, body: bytes, fields: dict[bytes, bytes], peer: str, unit: int, record: RequestRecord
    ) -> tuple[InferencePlan, ModelEntry]:
        """A slot of a target that is ready, waited for if need be. Raises: ApiError."""
        while True:
            # Anew each time: while it waited, the key may have gone, and so may the model.
            routes, grant = self._guard.admit_work(fields, peer)
            entry = self._find(routes, grant, asked, record)
            if not entry.ready[self.path]:
                await self._wait_loading(entry, asked, record)
                continue
            taken = await self._take(routes, entry, unit, body, record)
            now = self._state.routes
            if taken is not None and now is not None:
                order, waited_s = taken
                record.queued_s += waited_s
                plan = self.plan_type(self._dispatcher, now.upstreams, order, record, unit, entry.is_adapter)
                return plan, entry

    async def _take(
        self, routes: Routes, entry: ModelEntry, unit: int, body: bytes, record: RequestRecord
    ) -> tuple[Order, float] | None:
        """`Choice.take`, told to the request's trace, however the wait ends."""
        begun_s, taken = monotonic(), None
        try:
            taken = await self._choice.take(routes, entry, self.path, unit, body)
        finally:
            if record.trace is not None and (taken is None or taken[1]):
                record.trace.waited("queued", monotonic() - begun_s)
        return taken

    def _read_asked(self, body: bytes, record: RequestRecord) -> str:
        asked = read_asked(body)
        model = asked.model or ""
        record.model = cut(model)
        if asked.stream is True:
            record.stream = True
            record.wants_usage = asked.wants_usage
            record.has_stream_options = asked.has_stream_options
        record.request_bytes = len(body)
        return model

    def _find(self, routes: Routes, grant: Grant, model: str, record: RequestRecord) -> ModelEntry:
        entry = find_model(routes.lookup, grant, model)
        record.served = entry.model.id
        return entry

    async def _wait_loading(self, entry: ModelEntry, asked: str, record: RequestRecord) -> None:
        """`_wait_ready`, told to the request's trace."""
        begun_s = monotonic()
        try:
            await self._wait_ready(entry, asked)
        finally:
            if record.trace is not None:
                record.trace.waited("loading", monotonic() - begun_s)

    async def _wait_ready(self, entry: ModelEntry, model: str) -> None:
        """Have the model started if need be, and give it a moment. Raises: ApiError when it is not ready then."""
        unready = explain_unready(entry, self.path, model)
        if unready.target is not None and unready.awaits_adapter:
            await self._wait_adapter(unready.target, model)
            return
        if unready.target is None or not unready.error.retry_after_s:
            raise unready.error
        wait_s = unready.target.request_startup_wait_ms / 1000
        until_s = monotonic() + wait_s
        with self._dispatcher.loads.of(unready.target).wait():
            sleeper = self._find_sleeper(self._state.routes, model)
            if sleeper is None:
                # It may be on its way out: what is asked for before it is gone would come back before whom it makes
                # room for. So the start is asked for when it has stopped, and admission has seen that first.
                await self._state.wait_until(
                    lambda now: self._is_settled(now, model) or self._find_sleeper(now, model) is not None, wait_s
                )
                sleeper = self._find_sleeper(self._state.routes, model)
            if sleeper is not None:
                left_s = max(0.0, until_s - monotonic())
                settled = self._state.wait_until(lambda now: self._is_settled(now, model), left_s)
                await self._waker.start(sleeper.runtime, cut(model), settled, left_s)
        found = self._entry(self._state.routes, model)
        if found is not None and not found.ready[self.path]:
            raise explain_unready(found, self.path, model).error

    def _entry(self, routes: Routes | None, model: str) -> ModelEntry | None:
        """The model as these routes know it; None while the node does not serve, too."""
        return routes.lookup.models.get(model) if routes is not None and routes.lookup.table.serving else None

    def _find_sleeper(self, routes: Routes | None, model: str) -> RouteTarget | None:
        """The runtime that has to be asked to start before anybody can answer; None: waiting is all, or is no use."""
        entry = self._entry(routes, model)
        if entry is None or entry.ready[self.path]:
            return None
        unready = explain_unready(entry, self.path, model)
        return unready.target if unready.starts else None

    async def _wake_another(self, entry: ModelEntry, model: str) -> bool:
        """Nobody who is ready has answered: start a runtime that nobody needed until now, and give it a moment."""
        target = find_sleeping(entry, self.path)
        if target is None:
            return False
        wait_s = target.request_startup_wait_ms / 1000
        with self._dispatcher.loads.of(target).wait():
            settled = self._state.wait_until(lambda now: _is_ready(now, target.id), wait_s)
            try:
                await self._waker.start(target.runtime, cut(model), settled, wait_s)
            except ApiError:
                return False  # why those did not answer that were asked says more
        return self._state.routes is not None and _is_ready(self._state.routes, target.id)

    async def _wait_adapter(self, target: RouteTarget, model: str) -> None:
        """Have the model's adapter loaded, and wait for that as for a slot. Raises: ApiError."""
        limits, load = limits_of(target), self._dispatcher.loads.of(target)
        if load.waiting >= limits.queue:
            message = f"Too many requests wait for the model '{cut(model)}'."
            raise ApiError(429, "RUNTIME_QUEUE_FULL", message, model=model, retry_after_s=limits.retry_after_s)
        with load.wait():
            settled = self._state.wait_until(lambda now: not self._awaits_adapter(now, model), limits.queue_timeout_s)
            if await self._waker.adapters.load(target.runtime, target.adapter, cut(model), settled):
                return
        message = f"The adapters that are loaded are all in use, and that of the model '{cut(model)}' is not."
        raise ApiError(429, "adapter_busy", message, model=model, retry_after_s=limits.retry_after_s)

    def _awaits_adapter(self, routes: Routes, model: str) -> bool:
        entry = self._entry(routes, model)
        if entry is None or entry.ready[self.path]:
            return False
        return explain_unready(entry, self.path, model).awaits_adapter

    def _is_settled(self, routes: Routes, model: str) -> bool:
        """Whether waiting on has no purpose: the model is ready, is gone, or has failed."""
        entry = self._entry(routes, model)
        if entry is None or entry.ready[self.path]:
            return True
        return not explain_unready(entry, self.path, model).error.retry_after_s

    def _take_place(self, grant: Grant, record: RequestRecord) -> bool:
        """Whether the request is within its key's limits; then it has its place. False: `on_post` says why."""
        try:
            record.place = self._dispatcher.limiter.take(grant, self._words)
        except ApiError:
            return False
        return True

    def _abandon(self, record: RequestRecord) -> None:
        record.ended = "client_gone"
        self._dispatcher.endings.tell(record)

    def _pass_refusal(self, record: RequestRecord, refusal: Refusal, resp: Response) -> None:
        """An engine's own word against the request, which was read because its head could not be passed on."""
        record.status = refusal.status
        resp.status = refusal.status
        resp.content_type = MEDIA_JSON
        for name, value in refusal.headers:
            if name in _KEPT:
                resp.set_header(name.decode("latin-1"), value.decode("latin-1"))
        resp.data = self._word_refusal(refusal)
        self._dispatcher.endings.tell(record)

    def _word_refusal(self, refusal: Refusal) -> bytes:
        """Its body in this path's dialect."""
        return refusal.body

    def _refuse(self, resp: Response, record: RequestRecord, error: ApiError) -> None:
        record.status = error.http_status
        record.code = error.code
        if record.ended == "complete":
            record.ended = "refused"
        write_error(resp, error, self.path)
        resp.set_header("x-request-id", record.request_id)
        self._dispatcher.endings.tell(record)


def _is_ready(routes: Routes, target_id: str) -> bool:
    upstream = routes.upstreams.get(target_id)
    return upstream is not None and upstream.is_ready


def _add_headers(resp: Response, plan: InferencePlan, target: Target) -> None:
    for line in plan.response_headers(target).split(b"\r\n")[:-1]:
        name, _, value = line.partition(b": ")
        resp.set_header(name.decode("latin-1"), value.decode("latin-1"))


def find_trace(scope: Scope) -> Trace | None:
    """The trace of a request that was begun before."""
    found = scope.get(TRACE)
    return found if isinstance(found, Trace) else None


def find_client(scope: Scope) -> ClientStream | None:
    """The server's relay, where it offers one."""
    extensions = scope.get("extensions")
    client = extensions.get(SPLICE_EXTENSION) if isinstance(extensions, dict) else None
    return client if isinstance(client, ClientStream) else None


async def read_body(req: Request) -> bytes:
    """The whole body from a server that has no relay. Raises: ApiError (413)."""
    data = bytes(await req.stream.read(MAX_BODY_BYTES + 1))
    if len(data) > MAX_BODY_BYTES:
        raise ApiError(413, "body_too_large", "The request's body is too large.")
    return data
