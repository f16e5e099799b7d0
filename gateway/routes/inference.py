"""`POST /v1/chat/completions`, `/v1/completions`, `/v1/embeddings`: authenticate, decode, choose, relay.

One resource serves all three, because they differ in nothing that the gateway reads. The client leaving at any
moment closes the engine's request, streaming or not; that is the relay's doing (`core.http.splice`).
"""

import asyncio
from dataclasses import dataclass
from time import monotonic

from falcon.asgi import Request, Response

from core.api import RouteTarget
from core.http.asgi import SPLICE_EXTENSION, Scope
from core.http.stream import ClientStream
from gateway.auth import Access
from gateway.boundary import write_error
from gateway.decode import check_content, read_asked
from gateway.errors import ApiError, cut, unknown_model
from gateway.guard import Guard, peer_of
from gateway.incoming import read_headers
from gateway.readiness import explain_unready
from gateway.relay import Dispatcher, InferencePlan, explain_failure
from gateway.renamed import RenamedAnswer
from gateway.request_log import RequestIds, RequestRecord
from gateway.router import order_targets
from gateway.state import Routes, RouteState
from gateway.table import ModelEntry
from gateway.wake import Waker

MAX_BODY_BYTES = 64 << 20
READY_WAIT_S = 1.0
"""How long a request waits for a runtime that was just asked to start."""


FAILURE = "llmgw.failure"
"""Where a scope carries the `RelayFailure` that the fast lane met: its request is answered and not asked again."""


@dataclass(frozen=True, slots=True)
class RelayFailure:
    """A request that no target answered."""

    record: RequestRecord
    error: ApiError


@dataclass(frozen=True, slots=True)
class HeadJudgement:
    """What follows from a request's head and the routes at its time."""

    routes: Routes
    key: str
    request_id: bytes
    """As the client sent it; not judged yet."""


class Inference:
    """One inference path."""

    def __init__(self, path: str, guard: Guard, state: RouteState, dispatcher: Dispatcher, waker: Waker) -> None:
        self.path = path
        self.raw_path = path.encode("ascii")
        """What engines are asked: our own words, so that no escape and no query of a client reaches one."""
        self._guard = guard
        self._state = state
        self._dispatcher = dispatcher
        self._waker = waker
        self._ids = RequestIds()

    async def on_post(self, req: Request, resp: Response) -> None:
        failure = req.scope.get(FAILURE)
        if isinstance(failure, RelayFailure):
            self._refuse(resp, failure.record, failure.error)
            return
        fields = read_headers(req.scope["headers"])
        record = RequestRecord(self._ids.read_or_make(fields.get(b"x-request-id", b"")), self.path, monotonic())
        try:
            await self._serve(req, resp, fields, record)
        except ApiError as error:
            self._refuse(resp, record, error)
        except asyncio.CancelledError:
            # The client left while its model was being loaded: nobody is asked any more, but the line is owed.
            record.ended = "client_gone"
            self._dispatcher.log.write(record)
            raise

    def plan_relay(self, client: ClientStream) -> InferencePlan | None:
        """The whole decision for the usual request, without waiting for anything: a model that is ready.

        None for every other case, refusals included: `on_post` then goes through it again, and answers.
        """
        try:
            head = self._judge_head(client)
            record = RequestRecord(self._ids.read_or_make(head.request_id), self.path, monotonic(), key=head.key)
            entry, asked = self._read(head.routes, client.body, record)
        except ApiError:
            return None
        if not entry.ready[self.path] or entry.is_renamed or asked != entry.model.id:
            return None
        return InferencePlan(self._dispatcher, head.routes.upstreams, self._order(entry), record, self.raw_path)

    def _judge_head(self, client: ClientStream) -> HeadJudgement:
        """Who asks, and whether the body can be read. Raises: ApiError.

        A client that keeps its connection sends the same head again, byte for byte; while the routes are the same
        too, so is the judgement.
        """
        remembered = client.remembered
        if remembered is not None:
            known = remembered.note
            if isinstance(known, HeadJudgement) and known.routes is self._state.routes:
                return known
        fields = read_headers(client.headers)
        routes, key = self._guard.admit(Access.INFERENCE, fields, peer_of(client.client))
        check_content(fields.get(b"content-type", b""), fields.get(b"content-encoding", b""))
        judged = HeadJudgement(routes, key, fields.get(b"x-request-id", b""))
        if remembered is not None:
            remembered.note = judged
        return judged

    async def _serve(self, req: Request, resp: Response, fields: dict[bytes, bytes], record: RequestRecord) -> None:
        client = find_client(req.scope)
        routes, record.key = self._guard.admit(Access.INFERENCE, fields, peer_of(req.scope.get("client")))
        check_content(fields.get(b"content-type", b""), fields.get(b"content-encoding", b""))
        body = client.body if client is not None else await read_body(req)
        entry, asked = self._read(routes, body, record)
        if not entry.ready[self.path]:
            routes, entry = await self._wait_ready(entry, asked)
        plan = InferencePlan(self._dispatcher, routes.upstreams, self._order(entry), record)
        if client is None or entry.is_renamed or asked != entry.model.id:
            await RenamedAnswer(plan, entry, asked, body).respond(req, resp, self.raw_path)
            return
        outcome = await client.relay(plan, path=self.raw_path)
        if outcome is not None:
            raise explain_failure(outcome, record.model)

    def _read(self, routes: Routes, body: bytes, record: RequestRecord) -> tuple[ModelEntry, str]:
        """Which model is asked for, and whether it exists. Raises: ApiError."""
        asked = read_asked(body)
        model = asked.model or ""
        record.model = cut(model)
        record.stream = asked.stream is True
        entry = routes.lookup.models.get(model)
        if entry is None:
            raise unknown_model(model)
        return entry, model

    async def _wait_ready(self, entry: ModelEntry, model: str) -> tuple[Routes, ModelEntry]:
        """Have the model started if need be, and give it a moment. Raises: ApiError when it is not ready then."""
        unready = explain_unready(entry, self.path, model)
        if unready.start:
            await self._waker.start(unready.start, cut(model))
        elif not unready.error.retry_after_s:
            raise unready.error
        await self._state.wait_until(lambda now: self._is_settled(now, model), READY_WAIT_S)
        routes = self._state.routes
        found = routes.lookup.models.get(model) if routes is not None else None
        if routes is None or found is None:
            raise unknown_model(model)
        if not found.ready[self.path]:
            raise explain_unready(found, self.path, model).error
        return routes, found

    def _is_settled(self, routes: Routes, model: str) -> bool:
        """Whether waiting on has no purpose: the model is ready, is gone, or has failed."""
        entry = routes.lookup.models.get(model)
        if entry is None or entry.ready[self.path]:
            return True
        return not explain_unready(entry, self.path, model).error.retry_after_s

    def _order(self, entry: ModelEntry) -> tuple[RouteTarget, ...]:
        ready = entry.ready[self.path]
        if len(ready) == 1:
            return ready
        loads = self._dispatcher.loads
        return order_targets(ready, loads.in_flight(), loads.cooling(), loads.turn(entry.model.id))

    def _refuse(self, resp: Response, record: RequestRecord, error: ApiError) -> None:
        record.status = error.http_status
        record.code = error.code
        if record.ended == "complete":
            record.ended = "refused"
        write_error(resp, error)
        resp.set_header("x-request-id", record.request_id)
        self._dispatcher.log.write(record)


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
