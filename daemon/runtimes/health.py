"""Asking an engine whether it serves: one probe, read by its adapter."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from core.errors import TimedOutError, UnavailableError
from core.http.client import HttpClient
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

    async def ask(self, http: HttpClient) -> Answer:
        """One question and its answer; never raises for what an engine may do."""
        probe = self.adapter.health_probe(self.spec)
        url = probe.path if "://" in probe.path else f"http://{self.spec.host}:{self.spec.port}{probe.path}"
        headers = {}
        if self.key_path is not None and self.key_path.exists():
            headers["Authorization"] = f"Bearer {self.key_path.read_text().strip()}"
        try:
            reply = await http.fetch("GET", url, headers=headers, timeout_s=probe.timeout_s)
        except UnavailableError:
            return Answer.REFUSED
        except TimedOutError:
            return Answer.SILENT
        health = self.adapter.read_health(reply.status, reply.body)
        return {Health.READY: Answer.READY, Health.LOADING: Answer.LOADING, Health.FAILED: Answer.FAILED}[health]
