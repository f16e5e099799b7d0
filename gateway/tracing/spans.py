"""A request that is over as spans: one of the gateway's own, and one for each target that was asked. Pure.

Names follow OpenTelemetry's conventions for HTTP and for generative AI; what those have no word for begins with
`llmgw.`. Nothing of what was asked or answered is in here, and of a key only its name.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from core.http.verdict import Ended
from gateway.ending import RequestRecord
from gateway.tracing.trace import Asked, Trace

Value = str | int | float | bool
Attributes = dict[str, Value]

_OPERATIONS = {
    "/v1/chat/completions": "chat",
    "/v1/messages": "chat",
    "/v1/responses": "chat",
    "/v1/completions": "text_completion",
    "/v1/embeddings": "embeddings",
    "/v1/images/generations": "generate_content",
}
"""What the conventions call what a path is for; other paths have no word there."""
_GIVEN_UP = frozenset({Ended.CLIENT_GONE, Ended.COMPLETE})
"""Ends that are no fault of the target's."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened within a span."""

    name: str
    at_s: float
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class Span:
    """Times are in seconds since the epoch."""

    name: str
    is_server: bool
    trace_id: int
    span_id: int
    parent_id: int
    """0: nobody called."""
    is_parent_remote: bool
    state: str
    begun_s: float
    ended_s: float
    attributes: Attributes
    moments: Sequence[Moment] = ()
    failure: str | None = None
    """Why the span counts as an error; None: it does not."""


def build_spans(record: RequestRecord, trace: Trace) -> list[Span]:
    """The request's own span, then those of its attempts in their order."""
    return [_build_server(record, trace), *_build_clients(record, trace)]


def _build_server(record: RequestRecord, trace: Trace) -> Span:
    attributes = _describe_request(record, trace)
    if record.status:
        attributes["http.response.status_code"] = record.status
    attributes["http.response.body.size"] = record.size_bytes
    attributes["llmgw.attempts"] = record.attempts
    attributes["llmgw.ended"] = record.ended
    attributes |= _given({"llmgw.target": record.target, "llmgw.routing.why": record.why})
    if record.queued_s:
        attributes["llmgw.queued_s"] = round(record.queued_s, 6)
    failure = _failure_of(record)
    if failure:
        attributes["error.type"] = failure
    attributes |= _describe_usage(record)
    # A refusal for the client's own doing is no error of the server's, and who left did not fail.
    is_error = record.status >= 500 or (record.ended not in ("complete", "client_gone", "refused"))
    parent = trace.parent
    return Span(
        name=f"{trace.method} {record.path}",
        is_server=True,
        trace_id=trace.trace_id,
        span_id=trace.span_id,
        parent_id=parent.span_id if parent is not None else 0,
        is_parent_remote=parent is not None,
        state=parent.state if parent is not None else "",
        begun_s=trace.began_s + trace.epoch_s,
        ended_s=record.ended_s + trace.epoch_s,
        attributes=attributes,
        moments=_list_moments(record, trace),
        failure=failure if is_error else None,
    )


def _build_clients(record: RequestRecord, trace: Trace) -> list[Span]:
    # A target that was named for a retry which never came to it was not asked.
    over = [asked for asked in trace.asked if asked.ended_s]
    return [_build_client(record, trace, asked, is_last=asked is over[-1]) for asked in over]


def _build_client(record: RequestRecord, trace: Trace, asked: Asked, *, is_last: bool) -> Span:
    operation = _OPERATIONS.get(record.path, "")
    target, ended = asked.target, asked.ended or Ended.CLIENT_GONE
    attributes: Attributes = {
        "http.request.method": trace.method,
        "server.address": target.host,
        "server.port": target.port,
        "llmgw.target": target.name,
        "llmgw.ended": ended.value,
        "gen_ai.request.model": record.served or record.model,
    }
    if asked.status:
        attributes["http.response.status_code"] = asked.status
    attributes |= _given({"gen_ai.operation.name": operation, "llmgw.detail": asked.detail})
    if is_last:
        attributes |= _describe_usage(record)
    failure = None
    if ended not in _GIVEN_UP:
        failure = ended.value
    elif (asked.status or 0) >= 400:
        failure = str(asked.status)
    if failure is not None:
        attributes["error.type"] = failure
    state = trace.parent.state if trace.parent is not None else ""
    return Span(
        name=" ".join(word for word in (operation or "ask", record.served) if word),
        is_server=False,
        trace_id=trace.trace_id,
        span_id=asked.span_id,
        parent_id=trace.span_id,
        is_parent_remote=False,
        state=state,
        begun_s=asked.began_s + trace.epoch_s,
        ended_s=asked.ended_s + trace.epoch_s,
        attributes=attributes,
        failure=failure,
    )


def _describe_request(record: RequestRecord, trace: Trace) -> Attributes:
    attributes: Attributes = {
        "http.request.method": trace.method,
        "http.route": record.path,
        "url.path": record.path,
        "http.request.body.size": record.request_bytes,
        "llmgw.request_id": record.request_id,
        "llmgw.stream": record.stream,
    }
    return attributes | _given(
        {
            "gen_ai.operation.name": _OPERATIONS.get(record.path, ""),
            "gen_ai.request.model": record.model,
            "gen_ai.response.model": record.served,
            "client.address": record.client,
            "llmgw.key": record.key,
        }
    )


def _describe_usage(record: RequestRecord) -> Attributes:
    if not record.prompt_tokens and not record.completion_tokens:
        return {}
    usage: Attributes = {
        "gen_ai.usage.input_tokens": record.prompt_tokens,
        "gen_ai.usage.output_tokens": record.completion_tokens,
        "llmgw.usage.estimated": record.is_estimated,
    }
    if record.cached_tokens:
        usage["gen_ai.usage.cache_read.input_tokens"] = record.cached_tokens
    return usage


def _failure_of(record: RequestRecord) -> str:
    """Our own code where we refused, how it broke off, or the status; empty: it went well."""
    if record.code:
        return record.code
    if record.ended not in ("complete", "refused"):
        return record.ended
    return str(record.status) if record.status >= 400 else ""


def _list_moments(record: RequestRecord, trace: Trace) -> list[Moment]:
    moments = [Moment(wait.name, wait.began_s, {"llmgw.waited_s": round(wait.took_s, 6)}) for wait in trace.waits]
    if trace.relayed_s and record.first_byte_s:
        moments.append(Moment("first_byte", trace.relayed_s + record.first_byte_s, {}))
    if trace.relayed_s and record.stream and record.first_data_s:
        moments.append(Moment("first_token", trace.relayed_s + record.first_data_s, {}))
    if record.ended == Ended.CLIENT_GONE:
        moments.append(Moment("cancelled", record.ended_s, {}))
    return [Moment(each.name, each.at_s + trace.epoch_s, each.attributes) for each in moments]


def _given(attributes: dict[str, str]) -> dict[str, Value]:
    """Those that are there."""
    return {name: value for name, value in attributes.items() if value}
