"""`/v1/state`, `/v1/routes`, `/v1/reload`."""

from collections.abc import AsyncIterator, Callable

import falcon
import falcon.asgi
import msgspec

from core.api import ReloadResult
from daemon.firewall import Firewall
from daemon.hardware.sampler import Sampler
from daemon.local_api.access import Role
from daemon.node import Node
from daemon.status import node_state

Reloader = Callable[[bool], ReloadResult]
"""Reads the config file again and serves by it; with True only says what would change.

Raises: ConfigErrors, and then nothing changed.
"""


class State:
    """Everything that `llmgw status` shows."""

    role = Role.GATEWAY

    def __init__(self, node: Node, sampler: Sampler, firewall: Firewall, started_at: str) -> None:
        self._node = node
        self._sampler = sampler
        self._firewall = firewall
        self._started_at = started_at

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        resp.content_type = falcon.MEDIA_JSON
        state = await node_state(self._node, self._sampler.state(), self._firewall.state(), self._started_at)
        resp.data = msgspec.json.encode(state)


class Routes:
    """The route table now and after every change, a line each, until the reader leaves."""

    role = Role.GATEWAY

    def __init__(self, node: Node) -> None:
        self._node = node

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        resp.content_type = "application/x-ndjson"
        resp.stream = self._lines()

    async def _lines(self) -> AsyncIterator[bytes]:
        async for table in self._node.publisher.tables():
            yield msgspec.json.encode(table) + b"\n"


class Reload:
    """Read the config file again; `?dry=1` only says what that would change."""

    role = Role.ADMIN

    def __init__(self, reloader: Reloader) -> None:
        self._reload = reloader

    async def on_post(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode(self._reload(req.get_param_as_bool("dry", default=False)))
