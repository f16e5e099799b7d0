"""`GET /gateway/security`, `/gateway/models`, `/gateway/engines`: what is configured here, as far as it may be told."""

import msgspec
from falcon.asgi import Request, Response

from core.client import DaemonClient
from gateway.auth import Access
from gateway.errors import not_ready
from gateway.guard import Guard
from gateway.node_view import describe_model, describe_security
from gateway.state import RouteState


class Security:
    """Which keys are asked for. Public, as in the reference system: a client may learn that it needs one."""

    def __init__(self, state: RouteState) -> None:
        self._state = state

    async def on_get(self, req: Request, resp: Response) -> None:
        routes = self._state.routes
        if routes is None:
            raise not_ready()
        resp.media = describe_security(routes.lookup)


class Catalog:
    """Every model, with its aliases and whether it is advertised."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    async def on_get(self, req: Request, resp: Response) -> None:
        routes = self._guard.admit_request(Access.ADMIN, req)
        resp.media = {"models": [describe_model(model) for model in routes.lookup.table.models]}


class Engines:
    """Builds of engines on this machine, without the folders that they lie in."""

    def __init__(self, guard: Guard, daemon: DaemonClient) -> None:
        self._guard = guard
        self._daemon = daemon

    async def on_get(self, req: Request, resp: Response) -> None:
        self._guard.admit_request(Access.ADMIN, req)
        builds = msgspec.to_builtins((await self._daemon.engines()).builds)
        for build in builds:
            del build["path"]
        resp.media = {"builds": builds}
