"""What a worker knows: follows the daemon's route tables and always has the last good one at hand.

A worker starts with the daemon's table, or, when no daemon answers, with the one on disk; then it follows for ever.
While the daemon is away nothing changes: engines run on, and so does the last table. Every worker follows on a
connection of its own, so a change reaches all of them as fast as the daemon writes it.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass

from core.api import RouteTable, RouteTarget
from core.client import DaemonClient
from core.errors import LlmgwError
from core.http.pool import Target, UpstreamPool
from core.http.reach import NEAR, Reach
from core.log import EventLogger
from core.secret import Secret
from core.tasks import Backoff
from gateway.loads import Loads, TargetLoad
from gateway.snapshot import SnapshotFile
from gateway.table import Lookup, build_lookup, is_newer, sorted_key_files
from gateway.upstream_keys import read_keys

RECONNECT_BASE_S = 0.05
RECONNECT_CAP_S = 1.0
DAEMON_STARTS_S = 3.0
"""A daemon that is started at the same time as the gateway has a table within a second, mostly."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """A target as the relay needs it."""

    target: Target
    load: TargetLoad
    is_ready: bool
    header: bytes
    """The line that tells the client which target answered."""
    first_byte_timeout_s: float | None
    between_bytes_timeout_s: float | None


@dataclass(frozen=True, slots=True)
class Routes:
    """One table with everything made from it. Requests take it once and keep it to their end."""

    lookup: Lookup
    upstreams: Mapping[str, Upstream]
    """By target id, of every target in the table."""


def reach_of(target: RouteTarget) -> Reach:
    """How a target of the table is reached."""
    if not (target.tls or target.backend):
        return NEAR
    base_path = target.base_path.encode("ascii", "replace")
    return Reach(target.tls, target.ca_file, base_path, is_foreign=bool(target.backend))


def header_safe(text: str) -> bytes:
    """A name as a header's value: nothing in it can end the line."""
    return text.encode("ascii", "replace") if text.isprintable() else b"?"


class RouteState:
    """The current routes of this worker."""

    def __init__(
        self, daemon: DaemonClient, snapshot: SnapshotFile, pool: UpstreamPool, loads: Loads, log: EventLogger
    ) -> None:
        self.routes: Routes | None = None
        """None until the first table, from wherever it came."""
        self._daemon = daemon
        self._snapshot = snapshot
        self._pool = pool
        self._loads = loads
        self._log = log
        self._attempted = asyncio.Event()
        self._changed = asyncio.Event()
        self._unsaved = asyncio.Event()
        self._connected: bool | None = None

    @property
    def connected(self) -> bool:
        """Whether the daemon is being followed right now."""
        return self._connected is True

    async def prepare(self, timeout_s: float) -> None:
        """Return once there is a table or the daemon has been tried; `run` must be running.

        Waits at most `timeout_s` for a daemon that accepts and does not answer, and, where the disk knows of no table
        either, a moment for one that is being started beside us.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._attempted.wait()
        except TimeoutError:
            self._log.warning("daemon_slow", waited_s=timeout_s)
        if self.routes is None:
            self._use_snapshot()
        if self.routes is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(DAEMON_STARTS_S):
                    await self.next_change().wait()

    def _use_snapshot(self) -> None:
        table = self._snapshot.read()
        if table is None:
            self._log.warning("routes_unknown", file=self._snapshot.path)
            return
        self.apply(table)
        self._log.warning("routes_from_file", file=self._snapshot.path, version=table.version)

    async def run(self) -> None:
        """Follow the daemon and keep the file on disk current, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_for_ever())
            group.create_task(self._save_for_ever())

    async def _follow_for_ever(self) -> None:
        backoff = Backoff(RECONNECT_BASE_S, RECONNECT_CAP_S)
        while True:
            reason = "the daemon closed the connection"
            try:
                await self._follow(backoff)
            except LlmgwError as error:
                reason = error.message
            except ValueError as error:  # msgspec's errors are ValueErrors: a table that we cannot read
                reason = f"the daemon sent no route table: {error}"
            self._note_lost(reason)
            self._attempted.set()
            await asyncio.sleep(backoff.next_s())

    async def _follow(self, backoff: Backoff) -> None:
        async with aclosing(self._daemon.routes()) as tables:
            async for table in tables:
                backoff.reset()
                self._note_connected()
                if is_newer(table, self.routes.lookup.table if self.routes else None):
                    self.apply(table)
                    self._unsaved.set()
                self._attempted.set()

    def apply(self, table: RouteTable) -> None:
        """Make this table the one that requests use from now on."""
        keys, unusable = read_keys(sorted_key_files(table))
        if unusable:
            self._log.warning("upstream_key_unusable", files=",".join(unusable))
        targets = [target for model in table.models for target in model.targets]
        upstreams = {target.id: self._connect(target, keys.get(target.key_file)) for target in targets}
        before = self.routes.lookup if self.routes is not None else None
        self.routes = Routes(build_lookup(table, before), upstreams)
        self._pool.retain({upstream.target for upstream in upstreams.values()})
        self._loads.settle(targets)
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        self._log.debug("routes_applied", version=table.version, epoch=table.epoch, models=len(table.models))

    def _connect(self, target: RouteTarget, key: Secret | None) -> Upstream:
        """The pool's target for one of the table's: the same as before when nothing changed, with its connections."""
        secret = key.reveal() if key else ""
        pooled = self._pool.target(target.id, target.host, target.port, secret, reach=reach_of(target))
        return Upstream(
            target=pooled,
            load=self._loads.of(target),
            is_ready=target.ready,
            header=b"x-llmgw-target: %b\r\n" % header_safe(target.id),
            first_byte_timeout_s=target.first_byte_timeout_ms / 1000 or None,
            between_bytes_timeout_s=target.between_bytes_timeout_ms / 1000 or None,
        )

    def next_change(self) -> asyncio.Event:
        """Set when the routes change next."""
        return self._changed

    async def wait_until(self, holds: Callable[[Routes], bool], timeout_s: float | None) -> bool:
        """Wait until the routes satisfy `holds`; False when they do not within `timeout_s`; None: for ever."""
        try:
            async with asyncio.timeout(timeout_s):
                while self.routes is None or not holds(self.routes):
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def _save_for_ever(self) -> None:
        """Write the newest table whenever there is one; tables that come meanwhile are skipped over."""
        failing = False
        while True:
            await self._unsaved.wait()
            self._unsaved.clear()
            if self.routes is None:
                continue
            try:
                # In a thread: an fsync may take as long as the disk likes, and requests must not wait for it.
                await asyncio.to_thread(self._snapshot.write, self.routes.lookup.table)
                failing = False
            except LlmgwError as error:
                if not failing:
                    self._log.warning("routes_not_saved", error=error.message)
                failing = True

    def _note_connected(self) -> None:
        if self._connected is not True:
            self._log.info("daemon_connected")
        self._connected = True

    def _note_lost(self, reason: str) -> None:
        """Say it once per loss, however often reconnecting fails."""
        if self._connected is not False:
            self._log.warning("daemon_lost", reason=reason)
        self._connected = False
