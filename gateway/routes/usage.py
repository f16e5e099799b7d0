"""`GET /gateway/usage`: what requests have cost on this node, by key, model and day, for administrators."""

import msgspec
from falcon.asgi import Request, Response

from core.client import DaemonClient
from gateway.auth import Access
from gateway.guard import Guard

_PARAMETERS = ("from", "to", "key", "model", "by")


class Usage:
    """The daemon keeps the sums; what a worker has not reported yet, at most a second's, is not in them."""

    def __init__(self, guard: Guard, daemon: DaemonClient) -> None:
        self._guard = guard
        self._daemon = daemon

    async def on_get(self, req: Request, resp: Response) -> None:
        self._guard.admit_request(Access.ADMIN, req)
        given = {name: req.get_param(name) for name in _PARAMETERS}
        found = await self._daemon.usage({name: value for name, value in given.items() if value})
        resp.content_type = "application/json"
        resp.data = msgspec.json.encode(found)
