"""`POST /v1/chat/completions`, `/v1/completions`, `/v1/embeddings`: authenticate, decode, choose, relay.

One resource serves all three, because they differ in nothing that the gateway reads. The client leaving at any
moment closes the engine's request, streaming or not; that is the relay's doing (`core.http.splice`).
"""

import asyncio
from time import monotonic

from falcon.asgi import Request, Response

from core.api import RouteTarget
from core.http.asgi import SPLICE_EXTENSION
from core.http.stream import ClientStream
from gateway.auth import Access
from gateway.boundary import write_error
from gateway.decode import Asked, check_content, read_asked
from gateway.errors import ApiError, cut, unknown_model
from gateway.guard import Guard
from gateway.incoming import Incoming
from gateway.readiness import explain_unready
from gateway.relay import Dispatcher, InferencePlan, explain_failure
from gateway.renamed import RenamedAnswer
from gateway.request_log import RequestIds, RequestRecord, log_request
from gateway.router import order_targets
from gateway.state import Routes, RouteState
from gateway.table import ModelEntry
from gateway.wake import Waker

MAX_BODY_BYTES = 64 << 20
READY_WAIT_S = 1.0
"""How long a request waits for a runtime that was just asked to start."""


class Inference:
    """One inference path."""

    def __init__(self, path: str, guard: Guard, state: RouteState, dispatcher: Dispatcher, waker: Waker) -> None:
        self._path = path
        self._raw_path = path.encode("ascii")
        self._guard = guard
        self._state = state
        self._dispatcher = dispatcher
        self._waker = waker
        self._ids = RequestIds()

    async def on_post(self, req: Request, resp: Response) -> None:
        incoming = Incoming(req.scope)
        request_id = self._ids.read_or_make(incoming.get(b"x-request-id"))
        record = RequestRecord(request_id, self._path, monotonic())
        try:
            await self._serve(req, resp, incoming, record)
        except ApiError as error:
            self._refuse(resp, record, error)
        except asyncio.CancelledError:
            # The client left while its model was being loaded: nobody is asked any more, but the line is owed.
            record.ended = "client_gone"
            log_request(self._dispatcher.log, record, monotonic())
            raise

    async def _serve(self, req: Request, resp: Response, incoming: Incoming, record: RequestRecord) -> None:
        routes, record.key = self._guard.admit(Access.INFERENCE, incoming)
        check_content(incoming.text(b"content-type"), incoming.text(b"content-encoding"))
        client = find_client(req)
        body = client.body if client is not None else await read_body(req)
        model = self._note_asked(record, read_asked(body))
        routes, entry = await self._find_ready(routes, model)
        order = self._order(entry)
        plan = InferencePlan(self._dispatcher, routes, order, record)
        if client is None or entry.is_renamed or model != entry.model.id:
            await RenamedAnswer(plan, entry, model, body).respond(req, resp, self._raw_path)
            return
        # Our own path and not the client's: no escape and no query of a client reaches an engine.
        outcome = await client.relay(plan, path=self._raw_path)
        if outcome is not None:
            raise explain_failure(outcome, record.model)

    @staticmethod
    def _note_asked(record: RequestRecord, asked: Asked) -> str:
        model = asked.model or ""
        record.model = cut(model)
        record.stream = asked.stream is True
        return model

    async def _find_ready(self, routes: Routes, model: str) -> tuple[Routes, ModelEntry]:
        entry = routes.lookup.models.get(model)
        if entry is None:
            raise unknown_model(model)
        if entry.ready[self._path]:
            return routes, entry
        return await self._wait_ready(entry, model)

    async def _wait_ready(self, entry: ModelEntry, model: str) -> tuple[Routes, ModelEntry]:
        """Have the model started if need be, and give it a moment. Raises: ApiError when it is not ready then."""
        unready = explain_unready(entry, self._path, model)
        if unready.start:
            await self._waker.start(unready.start, cut(model))
        elif not unready.error.retry_after_s:
            raise unready.error
        await self._state.wait_until(lambda now: self._is_settled(now, model), READY_WAIT_S)
        routes = self._state.routes
        found = routes.lookup.models.get(model) if routes is not None else None
        if routes is None or found is None:
            raise unknown_model(model)
        if not found.ready[self._path]:
            raise explain_unready(found, self._path, model).error
        return routes, found

    def _is_settled(self, routes: Routes, model: str) -> bool:
        """Whether waiting on has no purpose: the model is ready, is gone, or has failed."""
        entry = routes.lookup.models.get(model)
        if entry is None or entry.ready[self._path]:
            return True
        return not explain_unready(entry, self._path, model).error.retry_after_s

    def _order(self, entry: ModelEntry) -> tuple[RouteTarget, ...]:
        ready = entry.ready[self._path]
        if len(ready) == 1:
            return ready
        loads = self._dispatcher.loads
        return order_targets(ready, loads.in_flight, loads.cooling(), loads.turn(entry.model.id))

    def _refuse(self, resp: Response, record: RequestRecord, error: ApiError) -> None:
        record.status = error.http_status
        record.code = error.code
        if record.ended == "complete":
            record.ended = "refused"
        write_error(resp, error)
        resp.set_header("x-request-id", record.request_id)
        log_request(self._dispatcher.log, record, monotonic())


def find_client(req: Request) -> ClientStream | None:
    """The server's relay, where it offers one."""
    extensions = req.scope.get("extensions")
    client = extensions.get(SPLICE_EXTENSION) if isinstance(extensions, dict) else None
    return client if isinstance(client, ClientStream) else None


async def read_body(req: Request) -> bytes:
    """The whole body from a server that has no relay. Raises: ApiError (413)."""
    data = bytes(await req.stream.read(MAX_BODY_BYTES + 1))
    if len(data) > MAX_BODY_BYTES:
        raise ApiError(413, "body_too_large", "The request's body is too large.")
    return data
