"""`/v1/runtimes/{id}/plan|admit|warmup`, `/v1/serving`, `/v1/activity`."""

import falcon
import falcon.asgi
import msgspec

from core.activity import ActivityReport
from core.admission import PlanReply, ServingReply, ServingRequest, WarmupReply
from daemon.local_api.access import Role
from daemon.local_api.body import read_body
from daemon.node import Node
from daemon.plans import plan_reply


class RuntimePlan:
    """What loading it would take; nothing is changed."""

    role = Role.GATEWAY

    def __init__(self, node: Node) -> None:
        self._node = node

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response, runtime_id: str) -> None:
        _answer(resp, plan_reply(self._node, runtime_id))


class RuntimeAdmit:
    """Carry the plan out: evict what it says, then start. Answers with the plan once the start is under way."""

    role = Role.GATEWAY

    def __init__(self, node: Node) -> None:
        self._node = node

    async def on_post(self, req: falcon.asgi.Request, resp: falcon.asgi.Response, runtime_id: str) -> None:
        reply = plan_reply(self._node, runtime_id)
        if reply.allowed:
            await self._node.start(runtime_id, "operator", wait=False)
        _answer(resp, reply)


class RuntimeWarmup:
    """Let a running engine answer a request of ours."""

    role = Role.GATEWAY

    def __init__(self, node: Node) -> None:
        self._node = node

    async def on_post(self, req: falcon.asgi.Request, resp: falcon.asgi.Response, runtime_id: str) -> None:
        _answer(resp, WarmupReply(runtime=runtime_id, took_s=round(await self._node.warm_up(runtime_id), 3)))


class Serving:
    """Whether this node serves at all."""

    role = Role.GATEWAY

    def __init__(self, node: Node) -> None:
        self._node = node

    async def on_post(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        request = await read_body(req, ServingRequest)
        _answer(resp, ServingReply(serving=request.on, stopped=self._node.set_serving(request.on)))


class ActivityReports:
    """What the gateway's workers have under way."""

    role = Role.GATEWAY

    def __init__(self, node: Node) -> None:
        self._node = node

    async def on_post(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        self._node.take_report(await read_body(req, ActivityReport))
        _answer(resp, ServingReply(serving=self._node.serving))


def _answer(resp: falcon.asgi.Response, reply: PlanReply | ServingReply | WarmupReply) -> None:
    resp.content_type = falcon.MEDIA_JSON
    resp.data = msgspec.json.encode(reply)
