"""Is this process alive, and may it be sent traffic. Public, and silent about everything else."""

import os

from falcon.asgi import Request, Response

from gateway.errors import not_ready
from gateway.state import RouteState


class Health:
    """`GET /health`: 200 as long as the worker's loop turns."""

    async def on_get(self, req: Request, resp: Response) -> None:
        resp.media = {"ok": True, "name": "llmgw", "pid": os.getpid()}

    on_head = on_get


class HealthReady:
    """`GET /health/ready`: 503 until a route table is known. A lost daemon does not make it unready."""

    def __init__(self, state: RouteState) -> None:
        self._state = state

    async def on_get(self, req: Request, resp: Response) -> None:
        routes = self._state.routes
        if routes is None:
            raise not_ready()
        table = routes.lookup.table
        resp.media = {"ok": True, "routes": {"version": table.version, "epoch": table.epoch}}

    on_head = on_get
