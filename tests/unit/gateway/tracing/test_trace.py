"""Which requests are recorded, and what is remembered of them."""

from random import Random

import pytest

from core.http.plan import Attempt
from core.http.pool import Target, UpstreamPool
from core.http.verdict import Ended
from gateway.ending import RequestRecord
from gateway.tracing.context import Parent
from gateway.tracing.otlp import encode
from gateway.tracing.spans import build_spans
from gateway.tracing.trace import MOST_ATTEMPTS, Trace
from tests.fakes.otlp_collector import read_spans

ALL = 1 << 64
CLIENTS = Parent(7, 8, True, "a=1")


def begin(parent: Parent | None = None, *, bound: int = ALL) -> Trace:
    return Trace(Random(1), parent, "POST", bound=bound)


def target(name: str = "t1") -> Target:
    return UpstreamPool().target(name, "127.0.0.1", 8201)


def record(trace: Trace, **changes: object) -> RequestRecord:
    fields: dict[str, object] = {"request_id": "r", "path": "/v1/chat/completions", "started_s": trace.began_s}
    return RequestRecord(**(fields | {"trace": trace, "ended_s": trace.began_s + 1.0} | changes))  # type: ignore[arg-type]


def test_the_share_is_kept_over_many_requests() -> None:
    ids = Random(1)
    sampled = sum(Trace(ids, None, "POST", bound=ALL // 4).is_sampled for _ in range(4000))
    assert 900 < sampled < 1100


@pytest.mark.parametrize(("bound", "expected"), [(0, False), (ALL, True)])
def test_all_and_none_are_exact(bound: int, expected: bool) -> None:
    ids = Random(1)
    assert {Trace(ids, None, "POST", bound=bound).is_sampled for _ in range(500)} == {expected}


def test_what_a_client_records_is_recorded_whatever_the_share() -> None:
    assert begin(CLIENTS, bound=0).is_sampled


def test_the_target_is_told_its_own_span() -> None:
    trace = begin(CLIENTS)
    lines = []
    for name in ("t1", "t2"):
        trace.ask(target(name))
        lines.append(trace.line)
    assert len({*lines}) == 2
    assert lines[1] == b"traceparent: 00-%032x-%016x-01\r\n" % (7, trace.asked[1].span_id)


def test_a_request_that_is_not_recorded_remembers_nothing() -> None:
    trace = begin(bound=0)
    trace.ask(target())
    trace.waited("queued", 1.0)
    assert not trace.asked and not trace.waits
    assert trace.line == b"traceparent: 00-%032x-%016x-00\r\n" % (trace.trace_id, trace.span_id)


def test_however_many_targets_are_asked_a_trace_has_its_size() -> None:
    trace = begin()
    for _ in range(100):
        at = target()
        trace.ask(at)
        trace.over(Attempt(at, Ended.CONNECT_FAILED))
        trace.waited("queued", 0.1)
    assert len(trace.asked) == MOST_ATTEMPTS and len(trace.waits) <= 16
    assert all(asked.ended is Ended.CONNECT_FAILED for asked in trace.asked)


def test_a_target_that_was_only_named_is_no_span() -> None:
    trace = begin()
    first = target("t1")
    trace.ask(first)
    trace.ask(target("t2"))
    trace.over(Attempt(first, Ended.CLIENT_GONE))
    assert [span.attributes.get("llmgw.target") for span in build_spans(record(trace), trace)] == [None, "t1"]


ENDS: list[tuple[dict[str, object], str | None, object]] = [
    ({"status": 200}, None, None),
    ({"status": 404, "code": "unknown_model", "ended": "refused"}, None, "unknown_model"),
    ({"status": 400}, None, "400"),
    ({"status": 503, "code": "system_stopped", "ended": "refused"}, "system_stopped", "system_stopped"),
    ({"status": 502, "code": "upstream_failed", "ended": "closed_early"}, "upstream_failed", "upstream_failed"),
    ({"status": 200, "ended": "upstream_broken"}, "upstream_broken", "upstream_broken"),
    ({"status": 500}, "500", "500"),
    ({"status": 0, "ended": "client_gone"}, None, "client_gone"),
]


@pytest.mark.parametrize(("fields", "failure", "kind"), ENDS)
def test_an_error_is_what_the_server_did_wrong(fields: dict[str, object], failure: str | None, kind: object) -> None:
    trace = begin()
    (span,) = build_spans(record(trace, **fields), trace)
    assert (span.failure, span.attributes.get("error.type")) == (failure, kind)


def test_a_span_crosses_to_the_collector_as_it_is() -> None:
    trace = begin(CLIENTS)
    at = target()
    trace.ask(at)
    trace.over(Attempt(at, Ended.CLOSED_EARLY, None, "closed"))
    trace.epoch_s = 1_000_000.0 - trace.began_s
    ended = record(trace, model="m\ud800", served="m", key="alice", status=502, code="upstream_failed",
                   ended="closed_early", queued_s=0.25, prompt_tokens=3, completion_tokens=4, attempts=1)  # fmt: skip
    server, client = read_spans(encode(build_spans(ended, trace), {"service.name": "s"}))
    assert server.raw.start_time_unix_nano == 1_000_000 * 10**9 and abs(server.took_s - 1.0) < 1e-6
    assert (server.parent_id, client.parent_id) == (f"{8:016x}", server.span_id)
    assert (server.raw.flags, client.raw.flags) == (0x301, 0x101)  # sampled; the parent was, or was not, elsewhere
    assert server.attributes["gen_ai.request.model"] == "m?" and server.attributes["llmgw.queued_s"] == 0.25
    assert server.attributes["gen_ai.usage.input_tokens"] == 3 and server.attributes["llmgw.usage.estimated"] is False
    assert client.attributes["llmgw.detail"] == "closed" and client.is_error and client.name == "chat m"


def test_no_number_of_an_engines_is_too_large_for_a_span() -> None:
    trace = begin()
    ended = record(trace, prompt_tokens=10**30, completion_tokens=1)
    (server,) = read_spans(encode(build_spans(ended, trace), {"service.name": "s"}))
    assert server.attributes["gen_ai.usage.input_tokens"] == (1 << 63) - 1


def test_requests_encoded_apart_are_one_export_together() -> None:
    parts = []
    for number in range(3):
        trace = Trace(Random(number), None, "POST", bound=ALL)
        parts.append(encode(build_spans(record(trace), trace), {"service.name": "s"}))
    assert len({span.trace_id for span in read_spans(b"".join(parts))}) == 3
