"""Keep-alive connections to upstreams: one `Target` for each, so that a silent engine cannot delay the others.

There is no limit on connections in use: how many requests an engine gets is the router's decision, not the
pool's. A connection is given out newest first, so that the rest can grow old and be closed.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from core import VERSION
from core.http.dial import Dialer, explain_failure
from core.http.limits import DEFAULT_POOL_LIMITS, PoolLimits
from core.http.reach import NEAR, Reach
from core.http.repeat import RememberedResponse
from core.http.sweep import Sweeper
from core.http.upstream import UpstreamConnection

Connected = Callable[[UpstreamConnection | None, str], None]
"""Called with a connection, or with None and the reason why there is none."""


class Target:
    """One upstream: its address, our key for it, and the idle connections to it."""

    __slots__ = (
        "_idle", "_limits", "_open", "closed", "fixed", "host", "is_foreign", "misses", "name", "path_of", "pool",
        "port", "reach", "remembered",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913 - the words of `UpstreamPool.target`
        self, pool: "UpstreamPool", name: str, host: str, port: int, key: str, reach: Reach
    ) -> None:
        self.name = name
        self.host = host
        self.port = port
        self.reach = reach
        self.is_foreign = reach.is_foreign
        self.path_of = reach.path_of
        self.closed = False
        self.remembered: RememberedResponse | None = None
        self.misses = 0
        authorization = f"authorization: Bearer {key}\r\n" if key else ""
        # Clients' own words for themselves stay here, and some services turn away who says none.
        agent = f"user-agent: llmgw/{VERSION}\r\n" if reach.is_foreign else ""
        self.fixed = f"host: {reach.authority(host, port)}\r\n{agent}{authorization}".encode("latin-1")
        self.pool = pool
        self._limits = pool.limits
        self._idle: deque[UpstreamConnection] = deque()
        self._open: set[UpstreamConnection] = set()

    def __repr__(self) -> str:
        return f"<Target {self.name} {self.host}:{self.port}>"

    def take_idle(self) -> UpstreamConnection | None:
        """A connection that was open a moment ago; it may turn out to be stale."""
        while self._idle:
            connection = self._idle.pop()
            transport = connection.transport
            if transport is not None and not transport.is_closing():
                return connection
        return None

    def connect(self, connected: Connected) -> asyncio.Task[None]:
        """Open a new connection; cancel the task to give up."""
        return self.pool.own(self._connect(connected))

    # what a connection calls (core.http.upstream.Home)

    def give_back(self, connection: UpstreamConnection) -> None:
        transport = connection.transport
        if self.closed or len(self._idle) >= self._limits.idle_per_target:
            if transport is not None:
                transport.close()
            return
        sweeper = self.pool.sweeper
        if sweeper.is_asleep:
            sweeper.wake()
        connection.idle_since = sweeper.now_s
        self._idle.append(connection)

    def forget(self, connection: UpstreamConnection) -> None:
        self._open.discard(connection)
        try:
            self._idle.remove(connection)
        except ValueError:
            pass

    # what the pool calls

    def close_idle(self, before: float) -> None:
        while self._idle and self._idle[0].idle_since <= before:
            transport = self._idle.popleft().transport
            if transport is not None:
                transport.close()

    @property
    def queue_bytes(self) -> int:
        return self._limits.queue_bytes

    @property
    def has_idle(self) -> bool:
        return bool(self._idle)

    def abort_all(self) -> None:
        for connection in list(self._open):
            if connection.transport is not None:
                connection.transport.abort()

    async def _connect(self, connected: Connected) -> None:
        connection = UpstreamConnection(self, self._limits.head_bytes)
        within_s = self._limits.connect_timeout_s
        try:
            await self.pool.dialer.open(connection, self.host, self.port, self.reach, within_s)
        except TimeoutError:
            connected(None, f"no connection within {within_s:g} s")
        except OSError as error:
            connected(None, explain_failure(error))
        else:
            self._open.add(connection)
            connected(connection, "")


class Watched(Protocol):
    """Something with a deadline that the pool's sweep looks at."""

    def check_deadline(self, now: float) -> None: ...


class UpstreamPool:
    """All targets of one event loop. `close` it at the end."""

    def __init__(self, limits: PoolLimits = DEFAULT_POOL_LIMITS) -> None:
        self.limits = limits
        self.dialer = Dialer(limits)
        self.sweeper = Sweeper(limits.sweep_s, self._sweep)
        self._targets: dict[tuple[str, str, int, str, Reach], Target] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._watched: set[Watched] = set()

    def watch(self, watched: Watched) -> None:
        """Have its deadline looked at, about every `sweep_s`, until `unwatch`."""
        self._watched.add(watched)
        self.sweeper.wake()

    def unwatch(self, watched: Watched) -> None:
        self._watched.discard(watched)

    def target(self, name: str, host: str, port: int, key: str = "", *, reach: Reach = NEAR) -> Target:
        """The target with exactly this address and key: the same object for the same words."""
        words = (name, host, port, key, reach)
        found = self._targets.get(words)
        if found is None:
            found = self._targets[words] = Target(self, name, host, port, key, reach)
        return found

    def retain(self, targets: "set[Target]") -> None:
        """Drop all targets but these. Requests under way on the others end by themselves."""
        for words, target in list(self._targets.items()):
            if target not in targets:
                del self._targets[words]
                target.closed = True
                target.close_idle(float("inf"))

    async def close(self) -> None:
        """Close everything, requests under way included."""
        self.sweeper.stop()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.dialer.close()
        for target in self._targets.values():
            target.closed = True
            target.abort_all()

    def own(self, connecting: "asyncio._CoroutineLike[None]") -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(connecting)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _sweep(self, now: float) -> bool:
        for target in self._targets.values():
            target.close_idle(now - self.limits.idle_timeout_s)
        for watched in list(self._watched):
            watched.check_deadline(now)
        return bool(self._watched) or any(target.has_idle for target in self._targets.values())
