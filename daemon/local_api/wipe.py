"""`/v1/wipe`: what would be removed, and removing it."""

import falcon
import falcon.asgi
import msgspec

from core.wipe import WipePlan, WipeRequest
from daemon.local_api.access import Role
from daemon.local_api.body import read_body
from daemon.node import Node
from daemon.wipe import carry_out, plan_wipe


class Wipe:
    """For administrators only, and only with the node's name typed out."""

    role = Role.ADMIN

    def __init__(self, node: Node) -> None:
        self._node = node

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        models = req.get_param_as_bool("models", default=False)
        everything = req.get_param_as_bool("all", default=False)
        _answer(resp, plan_wipe(self._node, models=models, everything=everything))

    async def on_post(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        _answer(resp, await carry_out(self._node, await read_body(req, WipeRequest)))


def _answer(resp: falcon.asgi.Response, plan: WipePlan) -> None:
    resp.content_type = falcon.MEDIA_JSON
    resp.data = msgspec.json.encode(plan)
