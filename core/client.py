"""Client of the daemon's local socket: one typed method per call of `core/api.py`."""

from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, urlencode

import msgspec

from core.activity import ActivityReport
from core.admission import PlanReply, ServingReply, ServingRequest, WarmupReply
from core.api import (
    AdapterReply,
    AdapterRequest,
    ErrorReply,
    NodeState,
    Progress,
    ReloadResult,
    RouteTable,
    RuntimeStatus,
    StartRequest,
    WeightsRequest,
)
from core.engines import EngineBuild, EngineList, InstallRequest, PruneRequest, RemovedBuilds, RemoveRequest
from core.errors import (
    BY_STATUS,
    BugError,
    DependencyError,
    LlmgwError,
    NotFoundError,
    PermissionError_,
    UnavailableError,
)
from core.firewall import FirewallState
from core.hardware import ClearRequest, ClearResult, DoctorReport, HardwareState
from core.http.client import HttpClient, LineStream, Unreachable
from core.keys import CreatedKey, CreateKeyRequest, KeyList, RevokedKey, RevokeKeyRequest
from core.message import Message
from core.usage import UsageAccepted, UsageList, UsageReport
from core.weights import PruneWeightsRequest, RemovedWeights, VerifyWeightsRequest, WeightsList
from core.wipe import WipePlan, WipeRequest

M = TypeVar("M", bound=Message)

_QUICK_S = 10.0
_START_S = 3 * 3600.0
"""A start with `wait` ends by the daemon's own deadline; this bound only keeps a client from hanging for ever."""


class DaemonUnavailable(UnavailableError):
    """The daemon does not answer on its socket."""

    code = "daemon_unavailable"


class DaemonClient:
    """Talks to one daemon. Use as an async context manager.

    Every method raises the error that the daemon answered, as the kind that its status stands for, or
    DaemonUnavailable, or PermissionError_ when the socket may not be opened.
    """

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._http = HttpClient(unix_socket=socket)

    async def __aenter__(self) -> "DaemonClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()

    async def state(self) -> NodeState:
        return await self._call("GET", "/v1/state", NodeState)

    async def start_runtime(self, runtime_id: str, *, wait: bool = True, reason: str = "operator") -> RuntimeStatus:
        body = msgspec.json.encode(StartRequest(wait=wait, reason=reason))
        timeout_s = _START_S if wait else _QUICK_S
        return await self._call("POST", _runtime_path(runtime_id, "start"), RuntimeStatus, body, timeout_s)

    async def stop_runtime(self, runtime_id: str) -> RuntimeStatus:
        return await self._call("POST", _runtime_path(runtime_id, "stop"), RuntimeStatus, timeout_s=600.0)

    async def load_adapter(self, runtime_id: str, adapter: str) -> AdapterReply:
        """Have the runtime's engine hold a LoRA adapter; returns when it does, which may be after others' requests.

        Cancelled, it is wanted no longer.
        """
        path = _runtime_path(runtime_id, "adapter")
        body = msgspec.json.encode(AdapterRequest(adapter=adapter))
        return await self._call("POST", path, AdapterReply, body, timeout_s=_START_S)

    async def restart_runtime(self, runtime_id: str) -> RuntimeStatus:
        path = _runtime_path(runtime_id, "restart")
        return await self._call("POST", path, RuntimeStatus, timeout_s=_START_S)

    async def hardware(self, *, fresh: bool = False) -> HardwareState:
        """What the machine is made of; with `fresh`, read now instead of the last sample."""
        return await self._call("GET", f"/v1/hardware{'?fresh=1' if fresh else ''}", HardwareState, timeout_s=60.0)

    async def doctor(self) -> DoctorReport:
        return await self._call("GET", "/v1/doctor", DoctorReport, timeout_s=60.0)

    async def clear_hardware(self, card: str) -> ClearResult:
        return await self._call("POST", "/v1/hardware/clear", ClearResult, msgspec.json.encode(ClearRequest(card=card)))

    async def report_activity(self, report: ActivityReport) -> ServingReply:
        """Tell what one worker of the gateway has under way."""
        return await self._call("POST", "/v1/activity", ServingReply, msgspec.json.encode(report), timeout_s=2.0)

    async def report_usage(self, report: UsageReport) -> UsageAccepted:
        """Tell what has ended at one worker of the gateway; answered when it is kept."""
        return await self._call("POST", "/v1/usage", UsageAccepted, msgspec.json.encode(report))

    async def usage(self, asked: Mapping[str, str]) -> UsageList:
        """What requests have cost; `asked`: any of `from`, `to`, `key`, `model`, `by` (`core.usage`)."""
        return await self._call("GET", f"/v1/usage?{urlencode(asked)}", UsageList, timeout_s=60.0)

    async def plan_runtime(self, runtime_id: str) -> PlanReply:
        """What loading it would take; nothing is changed."""
        return await self._call("GET", _runtime_path(runtime_id, "plan"), PlanReply)

    async def admit_runtime(self, runtime_id: str) -> PlanReply:
        """The plan, carried out when it is allowed."""
        return await self._call("POST", _runtime_path(runtime_id, "admit"), PlanReply)

    async def set_serving(self, on: bool) -> ServingReply:
        """Whether the node serves at all."""
        return await self._call("POST", "/v1/serving", ServingReply, msgspec.json.encode(ServingRequest(on=on)))

    async def firewall(self, *, fresh: bool = False) -> FirewallState:
        """How the firewall stands; with `fresh`, after the daemon looked at the table and mended it."""
        return await self._call("GET", f"/v1/firewall{'?fresh=1' if fresh else ''}", FirewallState, timeout_s=60.0)

    async def plan_wipe(self, *, models: bool, everything: bool) -> WipePlan:
        """What a wipe would remove."""
        return await self._call("GET", f"/v1/wipe?models={models}&all={everything}".lower(), WipePlan, timeout_s=60.0)

    async def wipe(self, request: WipeRequest) -> WipePlan:
        """Stop everything and remove it."""
        return await self._call("POST", "/v1/wipe", WipePlan, msgspec.json.encode(request), timeout_s=900.0)

    async def warm_up_runtime(self, runtime_id: str) -> WarmupReply:
        """Let a running engine answer a request."""
        path = _runtime_path(runtime_id, "warmup")
        return await self._call("POST", path, WarmupReply, timeout_s=_START_S)

    async def plan_reload(self) -> ReloadResult:
        """What `reload` would change."""
        return await self._call("POST", "/v1/reload?dry=1", ReloadResult, timeout_s=60.0)

    async def reload(self) -> ReloadResult:
        return await self._call("POST", "/v1/reload", ReloadResult, timeout_s=60.0)

    async def engines(self) -> EngineList:
        """Builds of engines on this machine."""
        return await self._call("GET", "/v1/engines", EngineList)

    def install_engine(self, engine: str, *, version: str = "", variant: str = "") -> AsyncGenerator[Progress, None]:
        """Progress lines; the last one has `done` or `error`. Close it (`aclosing`) when leaving early."""
        body = msgspec.json.encode(InstallRequest(version=version, variant=variant))
        return self._progress(f"/v1/engines/{quote(engine, safe='')}/install", body)

    async def roll_back_engine(self, engine: str) -> EngineBuild:
        return await self._call("POST", f"/v1/engines/{quote(engine, safe='')}/rollback", EngineBuild, timeout_s=60.0)

    async def remove_engine(self, engine: str, build: str) -> RemovedBuilds:
        body = msgspec.json.encode(RemoveRequest(build=build))
        path = f"/v1/engines/{quote(engine, safe='')}/remove"
        return await self._call("POST", path, RemovedBuilds, body, timeout_s=600.0)

    async def prune_engine(self, engine: str, *, apply: bool) -> RemovedBuilds:
        body = msgspec.json.encode(PruneRequest(apply=apply))
        path = f"/v1/engines/{quote(engine, safe='')}/prune"
        return await self._call("POST", path, RemovedBuilds, body, timeout_s=600.0)

    def fetch_weights(self, source: str) -> AsyncGenerator[Progress, None]:
        """Likewise."""
        return self._progress("/v1/weights/fetch", msgspec.json.encode(WeightsRequest(source=source)))

    def verify_weights(self, model: str = "", *, apply: bool = False) -> AsyncGenerator[Progress, None]:
        """Likewise; what was found is in the `verified` of the line before the last."""
        body = msgspec.json.encode(VerifyWeightsRequest(model=model, apply=apply))
        return self._progress("/v1/weights/verify", body)

    async def weights(self) -> WeightsList:
        """What was fetched."""
        return await self._call("GET", "/v1/weights", WeightsList, timeout_s=60.0)

    async def prune_weights(self, *, apply: bool) -> RemovedWeights:
        body = msgspec.json.encode(PruneWeightsRequest(apply=apply))
        return await self._call("POST", "/v1/weights/prune", RemovedWeights, body, timeout_s=600.0)

    async def keys(self) -> KeyList:
        """Clients' keys, without what they are."""
        return await self._call("GET", "/v1/keys", KeyList)

    async def create_key(self, request: CreateKeyRequest) -> CreatedKey:
        """Make a key; the answer is the only place where it stands."""
        return await self._call("POST", "/v1/keys", CreatedKey, msgspec.json.encode(request))

    async def revoke_key(self, key: str, *, apply: bool) -> RevokedKey:
        body = msgspec.json.encode(RevokeKeyRequest(key=key, apply=apply))
        return await self._call("POST", "/v1/keys/revoke", RevokedKey, body)

    async def routes(self) -> AsyncGenerator[RouteTable, None]:
        """The route table now and after every change; ends when the daemon goes away."""
        async with self._stream("GET", "/v1/routes", b"") as stream:
            async for line in stream.lines():
                if line:
                    yield msgspec.json.decode(line, type=RouteTable)

    async def logs(self, runtime_id: str, *, lines: int = 100, follow: bool = False) -> AsyncGenerator[str, None]:
        path = f"{_runtime_path(runtime_id, 'logs')}?lines={lines}&follow={'1' if follow else '0'}"
        async with self._stream("GET", path, b"") as stream:
            async for line in stream.lines():
                yield line.decode("utf-8", "replace")

    async def _progress(self, path: str, body: bytes) -> AsyncGenerator[Progress, None]:
        async with self._stream("POST", path, body) as stream:
            async for line in stream.lines():
                if line:
                    yield msgspec.json.decode(line, type=Progress)

    def _stream(self, method: str, path: str, body: bytes) -> "_Opened":
        return _Opened(self, self._http, method, path, body)

    async def _call(self, method: str, path: str, kind: type[M], body: bytes = b"", timeout_s: float = _QUICK_S) -> M:
        try:
            reply = await self._http.fetch(method, path, body=body, timeout_s=timeout_s, limit_bytes=64 << 20)
        except Unreachable as error:
            raise self._away(error) from error
        if reply.status != 200:
            raise read_error(reply.status, reply.body)
        try:
            return msgspec.json.decode(reply.body, type=kind)
        except msgspec.MsgspecError as error:
            raise DependencyError(f"the daemon's answer to {path} is not understood: {error}") from error

    def _away(self, error: Unreachable) -> LlmgwError:
        cause = error.__cause__
        inner = getattr(cause, "os_error", cause)
        if isinstance(inner, PermissionError):
            return PermissionError_(f"{self._socket} may not be opened by this user", code="socket_permission")
        return DaemonUnavailable(f"no daemon answers on {self._socket}")


class _Opened:
    """An open stream whose status was checked."""

    def __init__(self, client: DaemonClient, http: HttpClient, method: str, path: str, body: bytes) -> None:
        self._client = client
        self._context = http.stream(method, path, body=body)

    async def __aenter__(self) -> LineStream:
        try:
            stream = await self._context.__aenter__()
        except Unreachable as error:
            raise self._client._away(error) from error
        if stream.status != 200:
            body = await stream.read_all()
            await self._context.__aexit__(None, None, None)
            raise read_error(stream.status, body)
        return stream

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        await self._context.__aexit__(kind, error, None)


def _runtime_path(runtime_id: str, action: str) -> str:
    """Raises: NotFoundError for ids that would lead out of their place: they mean a folder in every URL."""
    if runtime_id in ("", ".", ".."):
        raise NotFoundError(f"there is no runtime {runtime_id!r}", hint="llmgw runtimes", code="runtime_unknown")
    return f"/v1/runtimes/{quote(runtime_id, safe='')}/{action}"


def read_error(status: int, body: bytes) -> LlmgwError:
    """The error that the daemon meant. Pure."""
    try:
        error = msgspec.json.decode(body, type=ErrorReply).error
    except msgspec.MsgspecError:
        return BugError(f"the daemon answered {status}: {body[:200].decode('utf-8', 'replace')}")
    return BY_STATUS.get(status, BugError)(error.message, hint=error.hint, code=error.code)
