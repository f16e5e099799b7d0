"""Composes the socket's Falcon application: routes, the check of the caller, and one shape for every error."""

import falcon
import falcon.asgi
import msgspec

from core.api import ErrorBody, ErrorReply
from core.errors import BugError, LlmgwError
from core.http.asgi import PEER_EXTENSION, AsgiApp, Peer
from core.log import get_logger
from daemon.firewall import Firewall
from daemon.jobs import Jobs
from daemon.local_api.access import Caller, Gatekeeper, Role, require
from daemon.local_api.admission import ActivityReports, RuntimeAdmit, RuntimePlan, RuntimeWarmup, Serving
from daemon.local_api.engines import EngineInstall, EnginePrune, EngineRemove, EngineRollback, Engines
from daemon.local_api.firewall import FirewallResource
from daemon.local_api.hardware import Doctor, Hardware, HardwareClear, Looking
from daemon.local_api.jobs import WeightsFetch
from daemon.local_api.keys import Keys, KeysRevoke
from daemon.local_api.runtimes import RuntimeAdapter, RuntimeLogs, RuntimeRestart, RuntimeStart, RuntimeStop
from daemon.local_api.state import Reload, Reloader, Routes, State
from daemon.local_api.usage import Usage
from daemon.local_api.verification import WeightsVerify
from daemon.local_api.weights import Weights, WeightsPrune
from daemon.local_api.wipe import Wipe
from daemon.node import Node
from daemon.usage.ledger import Ledger

_log = get_logger("daemon.local_api")


def create_app(  # noqa: PLR0913 - the parts of the daemon, met in one place
    node: Node, jobs: Jobs, reloader: Reloader, looking: Looking, firewall: Firewall, ledger: Ledger, started_at: str
) -> AsgiApp:
    """The application; every resource names the role it needs as `role`."""
    app = falcon.asgi.App(middleware=[_CallerCheck(Gatekeeper())])
    app.add_error_handler(LlmgwError, _answer_error)
    app.add_error_handler(falcon.HTTPError, _answer_http_error)
    app.add_error_handler(Exception, _answer_bug)
    app.add_route("/v1/state", State(node, looking.sampler, firewall, started_at))
    app.add_route("/v1/routes", Routes(node))
    app.add_route("/v1/reload", Reload(reloader))
    app.add_route("/v1/runtimes/{runtime_id}/start", RuntimeStart(node))
    app.add_route("/v1/runtimes/{runtime_id}/stop", RuntimeStop(node))
    app.add_route("/v1/runtimes/{runtime_id}/restart", RuntimeRestart(node))
    app.add_route("/v1/runtimes/{runtime_id}/adapter", RuntimeAdapter(node))
    app.add_route("/v1/runtimes/{runtime_id}/logs", RuntimeLogs(node))
    app.add_route("/v1/runtimes/{runtime_id}/plan", RuntimePlan(node))
    app.add_route("/v1/runtimes/{runtime_id}/admit", RuntimeAdmit(node))
    app.add_route("/v1/runtimes/{runtime_id}/warmup", RuntimeWarmup(node))
    app.add_route("/v1/activity", ActivityReports(node))
    app.add_route("/v1/usage", Usage(ledger))
    app.add_route("/v1/serving", Serving(node))
    app.add_route("/v1/wipe", Wipe(node))
    app.add_route("/v1/engines", Engines(node))
    app.add_route("/v1/engines/{engine}/install", EngineInstall(node, jobs, looking.sampler))
    app.add_route("/v1/engines/{engine}/rollback", EngineRollback(node))
    app.add_route("/v1/engines/{engine}/remove", EngineRemove(node))
    app.add_route("/v1/engines/{engine}/prune", EnginePrune(node))
    app.add_route("/v1/weights", Weights(node))
    app.add_route("/v1/weights/prune", WeightsPrune(node))
    app.add_route("/v1/weights/fetch", WeightsFetch(node, jobs))
    app.add_route("/v1/weights/verify", WeightsVerify(node, jobs))
    app.add_route("/v1/hardware", Hardware(looking))
    app.add_route("/v1/hardware/clear", HardwareClear(looking))
    app.add_route("/v1/keys", Keys(node))
    app.add_route("/v1/keys/revoke", KeysRevoke(node))
    app.add_route("/v1/doctor", Doctor(looking))
    app.add_route("/v1/firewall", FirewallResource(firewall))
    return app


class _CallerCheck:
    """Refuses before a responder runs; a resource without a `role` is for administrators only."""

    def __init__(self, gatekeeper: Gatekeeper) -> None:
        self._gatekeeper = gatekeeper

    async def process_resource(
        self, req: falcon.asgi.Request, resp: falcon.asgi.Response, resource: object, params: dict[str, str]
    ) -> None:
        peer = req.scope.get("extensions", {}).get(PEER_EXTENSION)
        if not isinstance(peer, Peer):
            raise BugError("the caller of the daemon's socket is unknown")
        caller = Caller(peer.pid, peer.uid, peer.gid)
        needed = getattr(resource, "role", Role.ADMIN)
        require(self._gatekeeper.role(caller), needed, caller)


async def _answer_error(
    req: falcon.asgi.Request, resp: falcon.asgi.Response, error: LlmgwError, params: dict[str, str]
) -> None:
    resp.status = error.http_status
    resp.content_type = falcon.MEDIA_JSON
    body = ErrorBody(code=error.code, message=error.message, hint=error.hint)
    resp.data = msgspec.json.encode(ErrorReply(error=body))


async def _answer_http_error(
    req: falcon.asgi.Request, resp: falcon.asgi.Response, error: falcon.HTTPError, params: dict[str, str]
) -> None:
    resp.status = error.status
    resp.content_type = falcon.MEDIA_JSON
    body = ErrorBody(code="bad_request" if error.status_code < 500 else "internal_error", message=error.title or "")
    resp.data = msgspec.json.encode(ErrorReply(error=body))


async def _answer_bug(
    req: falcon.asgi.Request, resp: falcon.asgi.Response, error: Exception, params: dict[str, str]
) -> None:
    _log.error("request_broke", path=req.path, error=repr(error))
    await _answer_error(req, resp, BugError(f"{req.method} {req.path}: {error!r}"), params)
