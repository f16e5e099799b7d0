"""How things stand now: each target's load and standing, over all workers, and the gateway's own processes.

Read when somebody asks (`/metrics`, `/gateway/metrics`, `/gateway/routing`); nothing here runs for a request.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from core.api import RouteModel, RouteTarget
from core.clock import Clock
from gateway.board import Board
from gateway.ejection import Standing, level_of, until_s_of
from gateway.loads import Loads, TargetLoad
from gateway.metrics.arena import gather
from gateway.metrics.numbers import Numbers, read_numbers
from gateway.state import Routes, RouteState


@dataclass(frozen=True, slots=True)
class TargetNow:
    """A target of the route table."""

    target: RouteTarget
    models: tuple[str, ...]
    standing: Standing
    in_flight: int
    """Requests that it works on, over all workers."""
    waiting: int
    """Requests that wait for a slot of it, over all workers."""
    slots: int
    recent: float
    """Requests that this worker sent there in the last seconds, older ones counting less."""
    out_for_s: float
    """Until its cool-down ends; 0: it has none, or it is over."""
    cool_downs: int
    """In a row, this one included; 0: it has none."""
    rests_for_s: float
    is_probed: bool


@dataclass(frozen=True, slots=True)
class Moment:
    """See the module."""

    models: tuple[RouteModel, ...]
    targets: tuple[TargetNow, ...]
    routes_version: int
    daemon_connected: bool
    workers: int
    resident_bytes: int
    """Of all workers; memory that they share counts for each."""
    began_at_s: int
    """When the gateway's arbiter began, since the epoch."""


class Moments:
    """Reads them for one worker."""

    def __init__(self, state: RouteState, loads: Loads, board: Board, clock: Clock) -> None:
        self._state = state
        self._loads = loads
        self._board = board
        self._clock = clock

    def read(self) -> Moment:
        """This one."""
        routes = self._state.routes
        pids = self._board.workers()
        return Moment(
            models=tuple(routes.lookup.table.models) if routes is not None else (),
            targets=self._read_targets(routes) if routes is not None else (),
            routes_version=routes.lookup.table.version if routes is not None else 0,
            daemon_connected=self._state.connected,
            workers=len(pids),
            resident_bytes=sum(read_resident_bytes(pid) for pid in pids),
            began_at_s=self._board.made_at_s,
        )

    def read_numbers(self) -> Numbers:
        """All that was ever counted. Takes some milliseconds, and may run in any thread."""
        return read_numbers(gather(self._board))

    def _read_targets(self, routes: Routes) -> tuple[TargetNow, ...]:
        served: dict[str, list[str]] = {}
        targets: dict[str, RouteTarget] = {}
        for model in routes.lookup.table.models:
            for target in model.targets:
                served.setdefault(target.id, []).append(model.id)
                targets[target.id] = target
        standings = self._loads.standings(list(targets.values()))
        return tuple(
            self._describe(target, routes.upstreams[id_].load, tuple(served[id_]), standings.get(id_, Standing.GOOD))
            for id_, target in sorted(targets.items())
        )

    def _describe(
        self, target: RouteTarget, load: TargetLoad, models: tuple[str, ...], standing: Standing
    ) -> TargetNow:
        now_s, health, slots = self._clock.monotonic_s(), load.health, load.slots
        mark = health.mark if health.is_failing else 0
        in_flight, waiting = slots.standing
        return TargetNow(
            target=target,
            models=models,
            standing=standing,
            in_flight=in_flight,
            waiting=waiting,
            slots=slots.limits.slots,
            recent=load.recent or 0.0,
            out_for_s=max(until_s_of(mark) - now_s, 0.0) if mark else 0.0,
            cool_downs=level_of(mark) + 1 if mark else 0,
            rests_for_s=max(health.resting_until_s - now_s, 0.0),
            is_probed=health.is_probed,
        )


def read_resident_bytes(pid: int) -> int:
    """What a process has in memory; 0: it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
