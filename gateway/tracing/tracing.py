"""Whether requests are traced, by the present route table: begins their traces, and hears of their ends.

A table with another `tracing` section is followed at once, in each worker, without a reload: requests that are under
way keep the trace that they have, and go to whatever collector there is at their end. Off means that nothing of
OpenTelemetry is loaded and a request pays for one look at `is_on`; what a client says of its trace then crosses to
engines untouched.
"""

import asyncio
import importlib
import json
import os
import socket
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from random import Random

from core import VERSION
from core.api import TracingPolicy
from core.log import EventLogger
from core.tasks import Backoff, supervise
from gateway.ending import RequestRecord
from gateway.metrics.layout import SpanFate
from gateway.state import RouteState
from gateway.tracing.context import read_parent
from gateway.tracing.exporter import Collector, Encoder, Exporter, Finished
from gateway.tracing.trace import Trace

FLUSH_S = 3.0
"""For what is left at a worker's end, after its requests; part of what the unit gives it to stop."""
_LARGEST_HEADERS = 64 << 10
_ENCODER = "gateway.tracing.otlp"


class Tracing:
    """One worker's. A listener of `gateway.ending`."""

    def __init__(self, state: RouteState, log: EventLogger, count: Callable[[SpanFate, int], None]) -> None:
        self.is_on = False
        self._state = state
        self._log = log
        self._count = count
        self._policy = TracingPolicy()
        self._bound = 0
        # Seeded by the kernel in this very process: two workers never number alike.
        self._ids = Random(os.urandom(32))
        self._exporter: Exporter | None = None
        self._sending: asyncio.Task[None] | None = None

    def begin(self, headers: Iterable[tuple[bytes, bytes]], method: str = "POST") -> Trace | None:
        """The trace of a request with these fields; None: it has none, or its client records none of it."""
        if not self.is_on:
            return None
        parent = read_parent(headers)
        if parent is not None and parent.trace_id and not parent.is_sampled:
            return None
        return Trace(self._ids, parent, method, bound=self._bound)

    def request_ended(self, record: RequestRecord) -> None:
        trace = record.trace
        if trace is not None and trace.is_sampled and self._exporter is not None:
            trace.end()
            self._exporter.offer(Finished(record, trace))

    async def prepare(self) -> None:
        """Follow the table that there is, before the first request."""
        await self._settle()

    async def run(self) -> None:
        """Follow the tables, until cancelled."""
        while True:
            changed = self._state.next_change()
            await self._settle()
            await changed.wait()

    async def close(self) -> None:
        """Send what is left, and stop."""
        await self._stop()

    async def _settle(self) -> None:
        routes = self._state.routes
        policy = routes.lookup.table.tracing if routes is not None else TracingPolicy()
        if policy == self._policy:
            return
        await self._stop()
        self._policy = policy
        if not policy.endpoint or routes is None:
            return
        headers = self._read_headers(policy)
        try:
            # In a thread: it reads some fifty files.
            encoder: Encoder = await asyncio.to_thread(importlib.import_module, _ENCODER)
        except ImportError as error:  # a broken installation serves, too
            self._log.error("tracing_unavailable", error=str(error))
            return
        collector = Collector(policy.endpoint, headers, _describe_us(policy, routes.lookup.table.node), encoder)
        self._exporter = Exporter(collector, self._log, self._count)
        sending = supervise("traces", self._exporter.run, self._log, Backoff(0.5, 10.0))
        self._sending = asyncio.get_running_loop().create_task(sending, name="traces")
        # As OpenTelemetry's own samplers decide, so that whoever samples by the same share keeps the same traces.
        self._bound = round(policy.sample_ratio * (1 << 64))
        self.is_on = True
        self._log.info("tracing_on", collector=policy.endpoint, share=policy.sample_ratio)

    async def _stop(self) -> None:
        self.is_on = False
        exporter, self._exporter = self._exporter, None
        sending, self._sending = self._sending, None
        if sending is not None:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        if exporter is not None:
            await exporter.close(FLUSH_S)

    def _read_headers(self, policy: TracingPolicy) -> Mapping[str, str]:
        """From the file that the daemon keeps them in; none where it cannot be used: the collector will say so."""
        if not policy.headers_file:
            return {}
        try:
            with Path(policy.headers_file).open("rb") as file:
                found = json.loads(file.read(_LARGEST_HEADERS))
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "no JSON"
            self._log.warning("tracing_headers_unusable", file=policy.headers_file, reason=reason)
            return {}
        return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}


def _describe_us(policy: TracingPolicy, node: str) -> dict[str, str]:
    return {
        "service.name": policy.service_name,
        "service.version": VERSION,
        "service.instance.id": f"{node}/{os.getpid()}",
        "host.name": socket.gethostname(),
    }
