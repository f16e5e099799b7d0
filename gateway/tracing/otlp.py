"""Spans as the bytes of OTLP, in OpenTelemetry's own messages; the one file that knows them.

Loaded by name, when tracing is on (`gateway.tracing.tracing`): it takes a worker some megabytes. Only the messages
are OpenTelemetry's, and not its SDK: that makes spans while a request runs and numbers them itself, where the engine
must be told a number before its span is over; its exporter brings an HTTP client that trusts a list of certificates
of its own, follows redirects with our headers, and reads answers of any length.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1 import trace_pb2

from core import VERSION
from gateway.tracing.spans import Attributes, Span, Value

_SCOPE = InstrumentationScope(name="llmgw.gateway", version=VERSION)
_HAS_REMOTE = trace_pb2.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK
_IS_REMOTE = trace_pb2.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK
_SAMPLED = 1
_LARGEST = (1 << 63) - 1
"""An engine may say any number of tokens."""
_OFTEN = frozenset(
    {
        "http.request.method", "http.route", "url.path", "http.response.status_code", "server.address", "server.port",
        "gen_ai.operation.name", "gen_ai.request.model", "gen_ai.response.model", "llmgw.key", "llmgw.target",
        "llmgw.ended", "llmgw.stream", "llmgw.attempts", "llmgw.routing.why", "llmgw.usage.estimated", "client.address",
    }
)  # fmt: skip
"""What is the same in many requests."""


def encode(spans: Sequence[Span], resource: Mapping[str, str]) -> bytes:
    """One export request. Several of them, one behind the other, are one export request, too."""
    scope_spans = trace_pb2.ScopeSpans(scope=_SCOPE, spans=[_encode_span(span) for span in spans])
    described = Resource(attributes=_encode_attributes(dict(resource)))
    request = ExportTraceServiceRequest(
        resource_spans=[trace_pb2.ResourceSpans(resource=described, scope_spans=[scope_spans])]
    )
    return request.SerializeToString()


def read_rejected(body: bytes) -> tuple[int, str]:
    """How many spans a collector took none the less not, by its answer, and why. Nonsense is no complaint."""
    try:
        partial = ExportTraceServiceResponse.FromString(body).partial_success
    except DecodeError:
        return 0, ""
    return max(partial.rejected_spans, 0), partial.error_message[:200]


def _encode_span(span: Span) -> trace_pb2.Span:
    kind = trace_pb2.Span.SPAN_KIND_SERVER if span.is_server else trace_pb2.Span.SPAN_KIND_CLIENT
    status = None
    if span.failure is not None:
        status = trace_pb2.Status(code=trace_pb2.Status.STATUS_CODE_ERROR, message=span.failure)
    return trace_pb2.Span(
        trace_id=span.trace_id.to_bytes(16),
        span_id=span.span_id.to_bytes(8),
        parent_span_id=span.parent_id.to_bytes(8) if span.parent_id else b"",
        trace_state=span.state,
        flags=_SAMPLED | _HAS_REMOTE | (_IS_REMOTE if span.is_parent_remote else 0),
        name=_text(span.name),
        kind=kind,
        start_time_unix_nano=_nano(span.begun_s),
        end_time_unix_nano=_nano(span.ended_s),
        attributes=_encode_attributes(span.attributes),
        events=[
            trace_pb2.Span.Event(
                name=moment.name, time_unix_nano=_nano(moment.at_s), attributes=_encode_attributes(moment.attributes)
            )
            for moment in span.moments
        ],
        status=status,
    )


def _encode_attributes(attributes: Attributes) -> list[KeyValue]:
    return [
        _encode_often(name, value) if name in _OFTEN else KeyValue(key=name, value=_encode_value(value))
        for name, value in attributes.items()
    ]


@lru_cache(maxsize=4096, typed=True)
def _encode_often(name: str, value: Value) -> KeyValue:
    """Making one anew costs several times as much as copying it."""
    return KeyValue(key=name, value=_encode_value(value))


def _encode_value(value: Value) -> AnyValue:
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=max(min(value, _LARGEST), -_LARGEST))
    return AnyValue(double_value=value) if isinstance(value, float) else AnyValue(string_value=_text(value))


def _text(text: str) -> str:
    """A client may send half of a surrogate pair; it becomes a question mark, and the span stays one."""
    return text.encode("utf-8", "replace").decode()


def _nano(seconds: float) -> int:
    return int(seconds * 1e9)
