"""`GET /gateway/runtimes/plan` and `POST /gateway/runtimes/…`: an administrator's hand on the runtimes, over HTTP.

The daemon does it and has the last word: what it refuses (an owner elsewhere, no room, a disabled runtime) is answered
in its own words. A client that leaves does not undo what it asked for.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
from falcon.asgi import Request, Response

from core.api import RuntimeStatus
from core.client import DaemonClient
from core.errors import NotFoundError, UsageError
from gateway.auth import Access
from gateway.guard import Guard
from gateway.node_view import describe_runtime
from gateway.plan_view import describe_plan

Json = dict[str, object]
_MAX_BODY_BYTES = 64 << 10


class StartBody(msgspec.Struct, frozen=True, kw_only=True):
    """`force` and `warmup` of the reference system are read over: an administrator's start is always forced."""

    wait: bool = True
    """Answer when it runs or has failed; else as soon as the start is under way."""


class AdmitBody(msgspec.Struct, frozen=True, kw_only=True):
    """Without `apply` the plan is only shown; `apply` wants `yes` beside it."""

    apply: bool = False
    yes: bool = False


B = TypeVar("B", StartBody, AdmitBody)


class RuntimePlan:
    """What loading a runtime would take: `?runtime=ID`."""

    def __init__(self, guard: Guard, daemon: DaemonClient) -> None:
        self._guard = guard
        self._daemon = daemon

    async def on_get(self, req: Request, resp: Response) -> None:
        self._guard.admit_request(Access.ADMIN, req)
        names = ("runtime", "runtime_id", "runtime-id")
        runtime_id = next((found for name in names if (found := req.get_param(name))), "")
        if not runtime_id:
            raise UsageError("which runtime? Say ?runtime=ID", code="invalid_request")
        resp.media = describe_plan(await self._daemon.plan_runtime(runtime_id))


class RuntimeAction:
    """`POST /gateway/runtimes/{runtime_id}/{action}`."""

    def __init__(self, guard: Guard, daemon: DaemonClient) -> None:
        self._guard = guard
        self._daemon = daemon
        self._actions: dict[str, Callable[[Request, str], Awaitable[Json]]] = {
            "start": self._start,
            "stop": self._stop,
            "restart": self._restart,
            "warmup": self._warm_up,
            "admit": self._admit,
        }

    async def on_post(self, req: Request, resp: Response, runtime_id: str, action: str) -> None:
        self._guard.admit_write(req)
        act = self._actions.get(action)
        if act is None:
            raise NotFoundError(f"a runtime cannot be told to '{action[:50]}'")
        resp.media = await act(req, runtime_id)

    async def _start(self, req: Request, runtime_id: str) -> Json:
        body = await _read(req, StartBody)
        status = await self._daemon.start_runtime(runtime_id, wait=body.wait)
        return _done(runtime_id, status, started=status.state != "failed")

    async def _stop(self, req: Request, runtime_id: str) -> Json:
        status = await self._daemon.stop_runtime(runtime_id)
        return _done(runtime_id, status, stopped=status.state == "stopped")

    async def _restart(self, req: Request, runtime_id: str) -> Json:
        status = await self._daemon.restart_runtime(runtime_id)
        return _done(runtime_id, status, restarted=status.state == "running")

    async def _warm_up(self, req: Request, runtime_id: str) -> Json:
        reply = await self._daemon.warm_up_runtime(runtime_id)
        return {"ok": True, "runtimeId": runtime_id, "warmed": True, "latencyMs": round(reply.took_s * 1000)}

    async def _admit(self, req: Request, runtime_id: str) -> Json:
        body = await _read(req, AdmitBody)
        if not body.apply:
            return describe_plan(await self._daemon.plan_runtime(runtime_id)) | {"applied": False}
        if not body.yes:
            raise UsageError("`apply` wants `yes` beside it", code="bad_request")
        plan = await self._daemon.admit_runtime(runtime_id)
        return describe_plan(plan) | {"applied": plan.allowed}


class StopAll:
    """Free every engine, and serve nothing until `keep-warm` or `llmgw start`."""

    def __init__(self, guard: Guard, daemon: DaemonClient) -> None:
        self._guard = guard
        self._daemon = daemon

    async def on_post(self, req: Request, resp: Response) -> None:
        self._guard.admit_write(req)
        reply = await self._daemon.set_serving(False)
        results = [{"runtimeId": runtime_id, "stopped": True} for runtime_id in reply.stopped]
        resp.media = {"ok": True, "serving": False, "stopped": len(results), "total": len(results), "results": results}


class KeepWarm:
    """Serve again; pinned runtimes are started."""

    def __init__(self, guard: Guard, daemon: DaemonClient) -> None:
        self._guard = guard
        self._daemon = daemon

    async def on_post(self, req: Request, resp: Response) -> None:
        self._guard.admit_write(req)
        reply = await self._daemon.set_serving(True)
        pinned = [status.id for status in (await self._daemon.state()).runtimes if status.keep_warm]
        resp.media = {"ok": True, "serving": reply.serving, "keepWarm": pinned}


def _done(runtime_id: str, status: RuntimeStatus, **what: bool) -> Json:
    return {"ok": all(what.values()), "runtimeId": runtime_id, **what, "runtime": describe_runtime(status)}


async def _read(req: Request, kind: type[B]) -> B:
    """The body; none at all is all defaults. Raises: UsageError."""
    body = bytes(await req.stream.read(_MAX_BODY_BYTES + 1))
    if len(body) > _MAX_BODY_BYTES:
        raise UsageError("the request's body is too large", code="body_too_large")
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise UsageError(f"the request's body is not understood: {error}", code="invalid_request") from None
