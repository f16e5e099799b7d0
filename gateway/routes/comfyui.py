"""`/v1/comfyui/MODEL/…`: ComfyUI's own API, for clients that speak it, through the model's gate.

What may be asked there, and whose answer one sees, is the gate's decision (`engines/gates/comfyui`); here the caller is
authenticated, the model is made ready, and the gate is told for whom it is. These requests take no slot: they are
short, and who looks at pictures must not wait behind who makes some. A prompt that is brought this way
(`POST …/prompt`) keeps the runtime busy all the same: its gate counts it. A websocket (`…/ws`) is carried through.
"""

import asyncio
from functools import partial
from time import monotonic

from falcon.asgi import Request, Response

from core.caller import caller_lines
from core.errors import BugError
from core.http.plan import Attempt, Progress, RelayOutcome, RelayPlan
from core.http.pool import Target
from core.http.verdict import Ended
from gateway.ending import RequestRecord
from gateway.errors import ApiError, cut
from gateway.incoming import read_browser_facts, read_headers
from gateway.lookup import find_model
from gateway.origin import check_origin
from gateway.relay import Dispatcher, explain_failure
from gateway.routes.inference import Inference, find_client
from gateway.socket_bridge import SocketBridge, offers_upgrade
from gateway.state import Routes, Upstream
from gateway.table import WORKFLOWS

PREFIX = "/v1/comfyui"
_SOCKET = b"/ws"
_SWITCHED = 101
_WORK = b"/prompt"
"""What counts among the requests that a key may send: looking at what came of it does not."""


class GatePlan(RelayPlan):
    """One request to one gate."""

    __slots__ = ("_dispatcher", "_lines", "_record", "_upstream", "says", "was_used")

    def __init__(self, dispatcher: Dispatcher, upstream: Upstream, record: RequestRecord) -> None:
        self._dispatcher = dispatcher
        self._upstream = upstream
        self._record = record
        self._lines = caller_lines(record.key, record.request_id)
        self.says = record.trace.says if record.trace is not None else frozenset()
        self.was_used = False

    def request_lines(self) -> bytes:
        trace = self._record.trace
        return self._lines if trace is None else self._lines + trace.line

    def begun(self, progress: Progress) -> None:
        self.was_used = True
        if self._record.trace is not None:
            self._record.trace.relayed_s = monotonic()

    def next_target(self, failed: Attempt | None) -> Target | None:
        if failed is not None:
            return None
        if self._record.trace is not None:
            self._record.trace.ask(self._upstream.target)
        return self._upstream.target

    def attempt_ended(self, attempt: Attempt) -> None:
        if self._record.trace is not None:
            self._record.trace.over(attempt)

    def response_headers(self, target: Target) -> bytes:
        record = self._record
        record.target = target.name
        lines = b"x-request-id: %b\r\n%b" % (record.request_id.encode("ascii"), self._upstream.header)
        return lines if record.place is None else lines + record.place.header_lines()

    def ended(self, outcome: RelayOutcome) -> None:
        record = self._record
        record.ended = outcome.ended
        record.attempts = len(outcome.attempts)
        record.size_bytes = outcome.size_bytes
        record.first_byte_s = outcome.first_byte_s or 0.0
        if outcome.status is not None or outcome.ended is Ended.CLIENT_GONE:
            record.status = outcome.status or 0
            self._dispatcher.endings.tell(record)


class ComfyUi(Inference):
    """Everything below the prefix: `MODEL/PATH`. A model's id may hold slashes."""

    async def on_get(self, req: Request, resp: Response, rest: str) -> None:
        await self._pass_on(req, resp)

    async def on_post(self, req: Request, resp: Response, rest: str = "") -> None:
        await self._pass_on(req, resp)

    async def on_delete(self, req: Request, resp: Response, rest: str) -> None:
        await self._pass_on(req, resp)

    async def _pass_on(self, req: Request, resp: Response) -> None:
        fields = read_headers(req.scope["headers"])
        request_id = self._ids.read_or_make(fields.get(b"x-request-id", b""))
        record = RequestRecord(request_id, PREFIX, monotonic())
        record.trace = self._tracing.begin(req.scope["headers"], req.method)
        try:
            await self._ask_gate(req, fields, record)
        except ApiError as error:
            self._refuse(resp, record, error)
        except asyncio.CancelledError:
            self._abandon(record)  # the client left while the model was being loaded
            raise

    async def _ask_gate(self, req: Request, fields: dict[bytes, bytes], record: RequestRecord) -> None:
        """Raises: ApiError."""
        peer = record.client = self._guard.address_of(req.scope.get("client"), req.scope["headers"])
        routes, grant = self._guard.admit_work(fields, peer)
        record.key = grant.name
        client = find_client(req.scope)
        if client is None:
            raise BugError("a gate is asked through llmgw's own server only")
        model, path = find_place(routes, client.path)
        record.model = cut(model)
        entry = self._find(routes, grant, model, record)
        if grant.limits is not None and path.removeprefix(b"/api") == _WORK:
            record.place = self._dispatcher.limiter.take(grant, self._words)
        is_socket = path.removeprefix(b"/api") == _SOCKET and offers_upgrade(client)
        if is_socket:
            # No CORS holds for these, and no browser lets a page send a key: where none is asked for, this is the door.
            check_origin(read_browser_facts(client.headers), loopback=routes.lookup.access.loopback)
        while not entry.ready[WORKFLOWS]:
            await self._wait_ready(entry, model)
            routes, grant = self._guard.admit_work(fields, peer)
            entry = self._find(routes, grant, model, record)
        # One gate knows one ComfyUI's prompts, so it is always the same one of several.
        upstream = routes.upstreams[entry.ready[WORKFLOWS][0].id]
        query = b"?" + client.query if client.query else b""
        if is_socket:
            may_stay = partial(self._judge, fields, peer, model)
            bridge = SocketBridge(self._state, upstream.target, caller_lines(record.key, record.request_id), may_stay)
            if await bridge.carry(client, path + query):
                record.target, record.status, record.attempts = upstream.target.name, _SWITCHED, 1
                self._dispatcher.endings.tell(record)
                return
        plan = GatePlan(self._dispatcher, upstream, record)
        outcome = await client.relay(plan, path=path + query)
        if outcome is not None:
            raise explain_failure(outcome, record.model)
        if not plan.was_used:
            self._abandon(record)

    def _judge(self, fields: dict[bytes, bytes], peer: str, model: str) -> None:
        """Whether such a request would be let in now. Raises: ApiError."""
        routes, grant = self._guard.admit_work(fields, peer)
        find_model(routes.lookup, grant, model)


def find_place(routes: Routes, raw_path: bytes) -> tuple[str, bytes]:
    """The model's name as it was asked for, and the path that its gate is asked. Pure.

    Nothing is decoded on the way: what the gate is asked is what stands in the request. Of a path that names no model
    the first word is taken for one.
    """
    words = raw_path.decode("latin-1").removeprefix(f"{PREFIX}/").split("/")
    for end in range(1, len(words)):
        model = "/".join(words[:end])
        if model in routes.lookup.models:
            return model, "/".join(["", *words[end:]]).encode("latin-1")
    return words[0], "/".join(["", *words[1:]]).encode("latin-1")
