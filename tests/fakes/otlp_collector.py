"""A collector of traces that speaks OTLP over HTTP, and is as good or as bad as a test wants it.

It decodes what it gets with OpenTelemetry's own messages, and keeps the bytes as well, so that a test can look for
what must not be in them.
"""

import asyncio
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2

Value = str | int | float | bool
PATH = "/v1/traces"


@dataclass
class Conduct:
    """How to answer. Change it at any time; it counts for the next request."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    rejects: int = 0
    """Spans that it says it did not take."""
    hangs: bool = False
    """Takes a request and never answers."""
    answer: bytes | None = None
    """Instead of its own."""
    endless: bool = False
    """An answer without an end, as fast as it is read."""


@dataclass(frozen=True)
class Received:
    """A span as it came."""

    raw: trace_pb2.Span
    resource: Mapping[str, Value]
    attributes: Mapping[str, Value]

    @property
    def name(self) -> str:
        return self.raw.name

    @property
    def is_server(self) -> bool:
        return self.raw.kind == trace_pb2.Span.SPAN_KIND_SERVER

    @property
    def is_error(self) -> bool:
        return self.raw.status.code == trace_pb2.Status.STATUS_CODE_ERROR

    @property
    def trace_id(self) -> str:
        return self.raw.trace_id.hex()

    @property
    def span_id(self) -> str:
        return self.raw.span_id.hex()

    @property
    def parent_id(self) -> str:
        return self.raw.parent_span_id.hex()

    @property
    def events(self) -> list[str]:
        return [event.name for event in self.raw.events]

    @property
    def took_s(self) -> float:
        return (self.raw.end_time_unix_nano - self.raw.start_time_unix_nano) / 1e9


class FakeCollector:
    """See the module. Use as an async context manager; `port` is the kernel's choice."""

    def __init__(self, conduct: Conduct | None = None, *, sock: socket.socket | None = None) -> None:
        """`sock`: bound, and nobody listens there before this one does."""
        self.conduct = conduct or Conduct()
        self.port = 0
        self._sock = sock
        self.posts = 0
        self.bodies: list[bytes] = []
        """Of the requests that it took."""
        self.headers: list[Mapping[str, str]] = []
        self.paths: list[str] = []
        self.spans: list[Received] = []
        self._changed = asyncio.Condition()
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{PATH}"

    async def __aenter__(self) -> "FakeCollector":
        app = web.Application(client_max_size=64 << 20)
        app.router.add_route("*", "/{rest:.*}", self._answer)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
        await self._runner.setup()
        own = (
            web.TCPSite(self._runner, "127.0.0.1", 0) if self._sock is None else web.SockSite(self._runner, self._sock)
        )
        await own.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def wait_for(self, holds: Callable[[], bool]) -> None:
        """Wait for what came to satisfy `holds`."""
        async with asyncio.timeout(30), self._changed:
            await self._changed.wait_for(holds)

    async def wait_spans(self, count: int) -> list[Received]:
        """So many spans, once they are here; those of one trace with the gateway's own before its attempts'."""
        await self.wait_for(lambda: len(self.spans) >= count)
        return self.spans

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        how, body = self.conduct, await request.read()
        self.posts += 1
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        self.paths.append(request.path)
        if how.status == 200 and not how.hangs:
            self.bodies.append(body)
            self.spans += read_spans(body)
        async with self._changed:
            self._changed.notify_all()
        if how.hangs:
            await asyncio.Event().wait()
        if how.endless:
            return await _answer_for_ever(request)
        answer = ExportTraceServiceResponse()
        if how.rejects:
            partial = ExportTracePartialSuccess(rejected_spans=how.rejects, error_message="too old")
            answer = ExportTraceServiceResponse(partial_success=partial)
        data = answer.SerializeToString() if how.answer is None else how.answer
        return web.Response(status=how.status, body=data, headers=how.headers)


async def _answer_for_ever(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b"x" * 65536)


def read_spans(body: bytes) -> list[Received]:
    """Every span of an export request."""
    request = ExportTraceServiceRequest.FromString(body)
    return [
        Received(span, _read(resource.resource.attributes), _read(span.attributes))
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def _read(attributes: "list[KeyValue]") -> dict[str, Value]:
    found: dict[str, Value] = {}
    for attribute in attributes:
        kind = attribute.value.WhichOneof("value")
        found[attribute.key] = getattr(attribute.value, str(kind))
    return found
