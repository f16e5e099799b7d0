"""A worker's beginning and end: follow the daemon before the first request, close what is open after the last.

The ASGI lifespan events arrive through Falcon's middleware hooks. Nothing here runs per request.
"""

import asyncio
from collections.abc import Mapping

from core.client import DaemonClient
from core.http.pool import UpstreamPool
from core.log import EventLogger
from core.tasks import Backoff, supervise
from gateway.activity import Reporter
from gateway.loads import Loads
from gateway.request_log import RequestLog
from gateway.state import RouteState
from gateway.tracing.tracing import Tracing
from gateway.usage.reporter import UsageReporter
from gateway.wake import Waker

FIRST_TABLE_S = 5.0
"""How long a daemon that accepts may take for its first table, before the last good one is used."""


class Lifecycle:
    """Owner of the worker's long-lived tasks and of its connections."""

    def __init__(  # noqa: PLR0913 - all that a worker has running
        self,
        state: RouteState,
        loads: Loads,
        reporters: tuple[Reporter, UsageReporter],
        tracing: Tracing,
        daemon: DaemonClient,
        pool: UpstreamPool,
        waker: Waker,
        requests: RequestLog,
        log: EventLogger,
    ) -> None:
        self._state = state
        self._loads = loads
        self._reporter, self._usage = reporters
        self._tracing = tracing
        self._daemon = daemon
        self._pool = pool
        self._waker = waker
        self._requests = requests
        self._log = log
        self._tasks: list[asyncio.Task[None]] = []

    async def process_startup(self, scope: Mapping[str, object], event: Mapping[str, object]) -> None:
        """Take no traffic before there are routes, from the daemon or from the disk."""
        self._loads.follow_wake_ups()
        loops = (("routes", self._state.run), ("activity", self._reporter.run), ("usage", self._usage.run))
        for name, run in loops:
            living = supervise(name, run, self._log, Backoff(0.5, 10.0))
            self._tasks.append(asyncio.get_running_loop().create_task(living, name=name))
        await self._state.prepare(FIRST_TABLE_S)
        await self._tracing.prepare()
        following = supervise("tracing", self._tracing.run, self._log, Backoff(0.5, 10.0))
        self._tasks.append(asyncio.get_running_loop().create_task(following, name="tracing"))

    async def process_shutdown(self, scope: Mapping[str, object], event: Mapping[str, object]) -> None:
        """Stop following and reporting, and close every connection."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._usage.close()
        await self._tracing.close()
        await self._waker.close()
        await self._pool.close()
        self._loads.close()
        await self._daemon.__aexit__()
        self._requests.flush()
