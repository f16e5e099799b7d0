"""In front of Falcon: the one kind of request that is nearly all of them goes to its engine without a detour.

`POST` on an inference path, over our own server, for a model that is ready under the client's own name: the same
decision that the resource would take (`Inference.plan_relay`), and the relay, without a task (`core.http.direct`).
Everything else is Falcon's: what is refused, waits, is renamed, or failed on the way.
"""

from falcon.asgi import App, Request, Response

from core.api import ServerPolicy
from core.http.asgi import Receive, Scope, Send
from core.http.stream import ClientStream
from core.http.tls import TlsFiles
from core.log import EventLogger
from gateway.activity import Reporter
from gateway.relay import InferencePlan, explain_failure
from gateway.routes.comfyui import PREFIX
from gateway.routes.inference import FAILURE, TRACE, Inference, RelayFailure, find_client
from gateway.state import RouteState
from gateway.table import FORM_PATHS

FalconApp = App[Request, Response]
_GATES = f"{PREFIX}/".encode()


class FastLane:
    """An ASGI application around the Falcon one."""

    def __init__(
        self, app: FalconApp, resources: tuple[Inference, ...], state: RouteState, reporter: Reporter, log: EventLogger
    ) -> None:
        self.app = app
        self._reporter = reporter
        self._log = log
        self._state = state
        self._resources = {resource.raw_path: resource for resource in resources}

    streamed_paths = frozenset(path.encode("ascii") for path in FORM_PATHS)
    """Forms on these are read while they arrive (`core.http.direct.StreamedApp`)."""

    def takes_websocket(self, path: bytes) -> bool:
        """Asked by our own server (`core.http.direct.WebSocketApp`)."""
        return path.startswith(_GATES) and path.endswith(b"/ws")

    def plan_directly(self, stream: ClientStream) -> InferencePlan | None:
        """Asked by our own server (`core.http.direct`) before there is a task or a scope."""
        routes = self._state.routes
        if routes is not None and routes.lookup.cors.origins:
            stream.added = routes.lookup.cors.lines(stream.path, stream.headers)
        resource = self._resources.get(stream.path) if stream.method == b"POST" else None
        return resource.plan_relay(stream) if resource is not None else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = find_client(scope) if scope["type"] == "http" else None
        if client is not None and client.failure is not None:
            plan, outcome = client.failure
            # Where another target was only busy, the request is begun anew, and may wait for it.
            if isinstance(plan, InferencePlan):
                if outcome.refusal is not None or not plan.is_short:
                    error = explain_failure(outcome, plan.record.model)
                    scope[FAILURE] = RelayFailure(plan.record, error, outcome.refusal)
                scope[TRACE] = plan.record.trace
        if client is not None and client.added and await self._answer_preflight(client, send):
            return
        await self.app(scope, receive, send)

    def tls_files(self) -> TlsFiles | None:
        """Asked by the worker when it begins to listen, and from then on (`core.http.tls`)."""
        routes = self._state.routes
        server = routes.lookup.table.server if routes is not None else ServerPolicy()
        return TlsFiles(server.tls_cert_file, server.tls_key_file) if server.tls_cert_file else None

    def tls_judged(self, complaint: str) -> None:
        """Told by the worker; the log has it, and so has `llmgw status`."""
        if complaint:
            self._log.error("certificate_not_in_use", reason=complaint)
        else:
            self._log.info("certificate_in_use")
        self._reporter.complain(complaint)

    async def _answer_preflight(self, client: ClientStream, send: Send) -> bool:
        routes = self._state.routes
        lines = routes.lookup.cors.preflight(client.method, client.path, client.headers) if routes is not None else b""
        if lines:
            client.added += lines
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body", "body": b""})
        return bool(lines)
