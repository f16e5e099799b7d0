"""Looking at one engine's progress and size from outside: its metrics, its processes' CPU time and memory.

Every look is bounded in time and tells what it could find out; it never raises for what an engine may do.
"""

from dataclasses import dataclass

from core.errors import LlmgwError
from core.http.client import HttpClient
from daemon.runtimes.health import Probe
from daemon.runtimes.processes import read_cpu_s
from engines.adapter import Progress
from units.backend import UnitBackend

_METRICS_S = 8.0
_METRICS_LIMIT_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Look:
    """What one look found; None: not known."""

    at_s: float
    steps: float | None = None
    """The engine's counters of progress, summed."""
    own: int | None = None
    """What it has under way or waiting, by its own counters."""
    cpu_s: float | None = None
    """CPU time of all its processes so far."""

    def cores_since(self, before: "Look | None") -> float | None:
        """Cores used on average between two looks."""
        if before is None or self.cpu_s is None or before.cpu_s is None or self.at_s <= before.at_s:
            return None
        return max(0.0, self.cpu_s - before.cpu_s) / (self.at_s - before.at_s)


async def look_at(probe: Probe, unit_name: str, http: HttpClient, backend: UnitBackend, now_s: float) -> Look:
    """One look."""
    try:
        cpu_s = read_cpu_s(await backend.read_pids(unit_name))
    except LlmgwError:
        cpu_s = None
    progress = await read_progress(probe, http)
    counted = [value for value in (progress.tokens_total, progress.steps_total) if value is not None]
    has_own = progress.running is not None and progress.waiting is not None
    own = int((progress.running or 0) + (progress.waiting or 0)) if has_own else None
    return Look(now_s, sum(counted) if counted else None, own, cpu_s)


async def read_progress(probe: Probe, http: HttpClient) -> Progress:
    """All that the engine counts of its progress; nothing where it does not say."""
    path = probe.adapter.metrics_path
    if path is None:
        return Progress()
    try:
        reply = await http.fetch(
            "GET", probe.url(path), headers=probe.headers(), timeout_s=_METRICS_S, limit_bytes=_METRICS_LIMIT_BYTES
        )
    except LlmgwError:
        return Progress()
    if reply.status != 200:
        return Progress()
    return probe.adapter.read_progress(reply.body.decode("utf-8", "replace"))
