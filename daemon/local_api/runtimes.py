"""`/v1/runtimes/{id}/…`: start, stop, restart, logs."""

from collections.abc import AsyncIterator

import falcon
import falcon.asgi
import msgspec

from core.api import AdapterReply, AdapterRequest, RuntimeStatus, StartRequest
from daemon.local_api.access import Role
from daemon.local_api.body import read_body
from daemon.node import Node
from daemon.runtimes.controller import RuntimeController
from daemon.status import runtime_status

_MAX_LOG_LINES = 100_000


class _Runtime:
    role = Role.ADMIN

    def __init__(self, node: Node) -> None:
        self._node = node

    async def _answer(self, resp: falcon.asgi.Response, controller: RuntimeController) -> None:
        status: RuntimeStatus = await runtime_status(self._node, controller)
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode(status)


class RuntimeStart(_Runtime):
    """Start it; the gateway asks for a client that wants its model, and for its administrators."""

    role = Role.GATEWAY

    async def on_post(self, req: falcon.asgi.Request, resp: falcon.asgi.Response, runtime_id: str) -> None:
        request = await read_body(req, StartRequest)
        await self._answer(resp, await self._node.start(runtime_id, request.reason, wait=request.wait))


class RuntimeStop(_Runtime):
    role = Role.GATEWAY

    async def on_post(self, req: falcon.asgi.Request, resp: falcon.asgi.Response, runtime_id: str) -> None:
        await self._answer(resp, await self._node.stop(runtime_id))


class RuntimeRestart(_Runtime):
    role = Role.GATEWAY

    async def on_post(self, req: falcon.asgi.Request, resp: falcon.asgi.Response, runtime_id: str) -> None:
        await self._answer(resp, await self._node.restart(runtime_id))


class RuntimeAdapter(_Runtime):
    """Have its engine hold a LoRA adapter; a caller who leaves wants it no longer."""

    role = Role.GATEWAY

    async def on_post(self, req: falcon.asgi.Request, resp: falcon.asgi.Response, runtime_id: str) -> None:
        request = await read_body(req, AdapterRequest)
        await self._node.adapters.ensure(self._node.controller(runtime_id), request.adapter)
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode(AdapterReply(runtime=runtime_id, adapter=request.adapter))


class RuntimeLogs(_Runtime):
    """The unit's log as text lines; `follow=1` goes on until the reader leaves."""

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response, runtime_id: str) -> None:
        controller = self._node.controller(runtime_id)
        count = req.get_param_as_int("lines", min_value=0, max_value=_MAX_LOG_LINES, default=100)
        resp.content_type = "text/plain; charset=utf-8"
        if req.get_param_as_bool("follow", default=False):
            resp.stream = self._follow(controller.unit_name, count)
            return
        lines = await self._node.backend.read_log(controller.unit_name, count)
        resp.data = "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")

    async def _follow(self, unit_name: str, count: int) -> AsyncIterator[bytes]:
        async for line in self._node.backend.follow_log(unit_name, count):
            yield f"{line}\n".encode("utf-8", "replace")
