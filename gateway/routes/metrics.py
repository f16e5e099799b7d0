"""`GET /metrics` for Prometheus, `GET /gateway/metrics` and `/gateway/routing` as JSON. For administrators.

Any worker answers for all. Reading and writing the text takes some milliseconds, so a thread does it: requests of
clients go on meanwhile.
"""

import asyncio

from falcon.asgi import Request, Response

from core.api import NodeState
from core.client import DaemonClient
from core.clock import Clock
from core.errors import LlmgwError
from gateway.auth import Access
from gateway.guard import Guard
from gateway.metrics.exposition import build_families, render
from gateway.metrics.moment import Moment, Moments
from gateway.metrics.views import describe_metrics, describe_routing

_DAEMON_S = 1.0
"""How long a scrape waits for the daemon's part; without it the rest is told."""


class Metrics:
    """`GET /metrics`."""

    def __init__(self, guard: Guard, daemon: DaemonClient, moments: Moments) -> None:
        self._guard = guard
        self._daemon = daemon
        self._moments = moments

    async def on_get(self, req: Request, resp: Response) -> None:
        self._guard.admit_request(Access.ADMIN, req)
        node = await self._ask_daemon()
        accept = req.get_header("accept") or ""
        resp.data, resp.content_type = await asyncio.to_thread(self._render, self._moments.read(), node, accept)

    def _render(self, moment: Moment, node: NodeState | None, accept: str) -> tuple[bytes, str]:
        return render(build_families(self._moments.read_numbers(), moment, node), accept)

    async def _ask_daemon(self) -> NodeState | None:
        try:
            async with asyncio.timeout(_DAEMON_S):
                return await self._daemon.state()
        except (LlmgwError, TimeoutError):
            return None


class MetricsView:
    """`GET /gateway/metrics`; `?model=ID` for one model."""

    def __init__(self, guard: Guard, moments: Moments, clock: Clock) -> None:
        self._guard = guard
        self._moments = moments
        self._clock = clock

    async def on_get(self, req: Request, resp: Response) -> None:
        self._guard.admit_request(Access.ADMIN, req)
        model, moment = req.get_param("model") or "", self._moments.read()
        numbers = await asyncio.to_thread(self._moments.read_numbers)
        resp.media = describe_metrics(numbers, moment, model=model, now_s=self._clock.wall_s())


class Routing:
    """`GET /gateway/routing`."""

    def __init__(self, guard: Guard, moments: Moments) -> None:
        self._guard = guard
        self._moments = moments

    async def on_get(self, req: Request, resp: Response) -> None:
        self._guard.admit_request(Access.ADMIN, req)
        resp.media = describe_routing(self._moments.read())
