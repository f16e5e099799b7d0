"""Tells the daemon what this worker has under way: drains, idle stops and the watchdog depend on it.

A report goes out at most ten times a second when something changed, and every two seconds when nothing did. A
daemon that is away is asked again in silence: the routes say already that it is lost. `Observer` is pure. Targets that
are found silent on the way rest (`gateway.silence`).
"""

import asyncio
import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field

from core.activity import REPORT_EVERY_S, ActivityReport, AdapterActivity, BackendActivity, RuntimeActivity
from core.client import DaemonClient
from core.clock import Clock
from core.errors import LlmgwError
from gateway.loads import Loads, TargetLoad, UnderWay
from gateway.silence import Silence
from gateway.state import RouteState

DEBOUNCE_S = 0.1
SILENT_REST_S = 2 * REPORT_EVERY_S
"""A silent target is not asked until the next look but one; until then it has been looked at again."""


@dataclass(slots=True)
class Observer:
    """Sums up loads by runtime, and remembers since when a request has had no byte."""

    _seen: dict[UnderWay, tuple[int, float]] = field(default_factory=dict)
    """Request -> its bytes, and when that many were first seen."""

    def observe(self, loads: Iterable[TargetLoad], now_s: float) -> dict[str, RuntimeActivity]:
        """What is under way, by runtime id. Targets that never had a request are left out."""
        found: dict[str, RuntimeActivity] = {}
        seen: dict[UnderWay, tuple[int, float]] = {}
        for load in loads:
            if not load.runtime_id or (load.is_idle and load.ended_s is None and not load.adapters):
                continue
            one = self._describe(load, seen, now_s)
            other = found.get(load.runtime_id)
            found[load.runtime_id] = one if other is None else _join(one, other)
        self._seen = seen
        return found

    def _describe(self, load: TargetLoad, seen: dict[UnderWay, tuple[int, float]], now_s: float) -> RuntimeActivity:
        size_bytes, since_s, held_back = load.done_bytes, now_s, 0
        for request in load.under_way:
            so_far = request.progress.size_bytes if request.progress is not None else 0
            size_bytes += so_far
            # The first byte of a buffered answer is its last, and a client that does not read stops the engine itself.
            if request.progress is not None and request.progress.is_held_back:
                held_back += 1
            elif request.is_streamed:
                before = self._seen.get(request)
                seen[request] = before if before is not None and before[0] == so_far else (so_far, now_s)
                since_s = min(since_s, seen[request][1])
        return RuntimeActivity(
            active=load.active,
            waiting=load.waiting,
            idle_s=None if load.ended_s is None else round(now_s - load.ended_s, 3),
            bytes_total=size_bytes,
            held_back=held_back,
            stalled_s=round(now_s - since_s, 3),
            adapters={
                name: AdapterActivity(
                    in_use=one.in_use, idle_s=None if one.ended_s is None else round(now_s - one.ended_s, 3)
                )
                for name, one in load.adapters.items()
            },
        )


def describe_backends(loads: Iterable[TargetLoad], now_s: float) -> dict[str, BackendActivity]:
    """What this worker has under way at backends, and what it has met there."""
    return {
        load.backend_id: BackendActivity(
            active=load.active,
            waiting=load.waiting,
            standing=load.health.standing().name.lower(),
            error=load.health.last_error,
            failed_ago_s=round(now_s - load.health.failed_s, 3) if load.health.last_error else None,
        )
        for load in loads
        if load.backend_id
    }


def _join(one: RuntimeActivity, other: RuntimeActivity) -> RuntimeActivity:
    """Of targets of one runtime. No adapter is at two of them."""
    idle_s = [each.idle_s for each in (one, other) if each.idle_s is not None]
    return RuntimeActivity(
        active=one.active + other.active,
        waiting=one.waiting + other.waiting,
        idle_s=min(idle_s, default=None),
        bytes_total=one.bytes_total + other.bytes_total,
        held_back=one.held_back + other.held_back,
        stalled_s=max(one.stalled_s, other.stalled_s),
        adapters=one.adapters | other.adapters,
    )


class Reporter:
    """Sends the reports of one worker for as long as it runs."""

    def __init__(self, daemon: DaemonClient, state: RouteState, loads: Loads, clock: Clock) -> None:
        self._daemon = daemon
        self._state = state
        self._loads = loads
        self._clock = clock
        self._observer = Observer()
        self._silence = Silence()
        self._complaint = ""
        self._source = f"{os.getpid()}-{secrets.token_hex(4)}"

    def complain(self, complaint: str) -> None:
        """Something keeps this worker from serving as the config says; empty: no longer."""
        self._complaint = complaint
        self._loads.changed.set()

    async def run(self) -> None:
        """Report until cancelled."""
        while True:
            try:
                async with asyncio.timeout(REPORT_EVERY_S):
                    await self._loads.changed.wait()
                    await asyncio.sleep(DEBOUNCE_S)
            except TimeoutError:
                pass
            self._loads.changed.clear()
            await self._report()

    async def _report(self) -> None:
        routes = self._state.routes
        if routes is None:
            return
        table = routes.lookup.table
        now_s = self._clock.monotonic_s()
        for load in self._silence.find(self._loads, now_s):
            load.health.rest(SILENT_REST_S)
        runtimes = self._observer.observe(self._loads, now_s)
        backends = describe_backends(self._loads, now_s)
        report = ActivityReport(
            source=self._source,
            epoch=table.epoch,
            version=table.version,
            runtimes=runtimes,
            backends=backends,
            complaint=self._complaint,
        )
        try:
            await self._daemon.report_activity(report)
        except LlmgwError:
            # It will be asked again, and what is counted here is not lost by it.
            return
