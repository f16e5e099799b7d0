"""Asking an engine whether it serves: one probe, read by its adapter."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from core.errors import TimedOutError, UnavailableError
from core.http.client import HttpClient
from daemon.runtimes.engine_key import read_key
from engines.adapter import EngineAdapter, EngineSpec, Health


class Answer(StrEnum):
    """What came of one probe."""

    READY = "ready"
    LOADING = "loading"
    FAILED = "failed"
    REFUSED = "refused"
    """Nobody listens yet, or no more."""
    SILENT = "silent"
    """Connected, and no answer within the probe's time: busy, or stuck."""


@dataclass(frozen=True, slots=True)
class Probe:
    """How to ask one runtime."""

    adapter: EngineAdapter
    spec: EngineSpec
    key_path: Path | None

    def url(self, path: str) -> str:
        """Where the engine answers `path`; a whole URL stays what it is."""
        return path if "://" in path else f"http://{self.spec.host}:{self.spec.port}{path}"

    def headers(self) -> dict[str, str]:
        """What it demands of every request. The key is read anew each time: it lies in a file of its own."""
        key = read_key(self.key_path) if self.key_path is not None else ""
        return {"Authorization": f"Bearer {key}"} if key else {}

    async def ask(self, http: HttpClient) -> Answer:
        """One question and its answer; never raises for what an engine may do."""
        probe = self.adapter.health_probe(self.spec)
        if not probe.path:
            return Answer.READY  # it serves nothing (a rank that only computes) and is as well as its process
        try:
            reply = await http.fetch("GET", self.url(probe.path), headers=self.headers(), timeout_s=probe.timeout_s)
        except UnavailableError:
            return Answer.REFUSED
        except TimedOutError:
            return Answer.SILENT
        health = self.adapter.read_health(reply.status, reply.body)
        return {Health.READY: Answer.READY, Health.LOADING: Answer.LOADING, Health.FAILED: Answer.FAILED}[health]
