"""Traces through a real gateway: whose part a request is, what it asked, and what became of it."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from core.api import RouteTable, TracingPolicy
from gateway.tracing import exporter
from tests.fakes.otlp_collector import FakeCollector, Received
from tests.fakes.upstream import Behaviour, FakeUpstream, Seen
from tests.integration.gateway.harness import CHAT, Gateway, chat, gateway, raw_request, target_of
from tests.unit.gateway.tables import key, model, table, target

LANES = ["fast lane", "resource"]
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
SAMPLED = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=opaque,other=1"}
QUIET = {"traceparent": f"00-{TRACE}-{PARENT}-00", "tracestate": "vendor=opaque"}


def traced(routes: RouteTable, collector: FakeCollector, **policy: object) -> RouteTable:
    found = TracingPolicy(endpoint=collector.url, **policy)  # type: ignore[arg-type]
    return msgspec.structs.replace(routes, tracing=found)


@dataclass
class Scene:
    """One engine, one collector and a gateway between them."""

    gateway: Gateway
    engine: FakeUpstream
    collector: FakeCollector
    routes: RouteTable

    async def ask(self, body: bytes, headers: dict[str, str] | None = None, path: str = CHAT) -> int:
        return (await raw_request((self.gateway.host, self.gateway.port), path, body, headers)).status

    @property
    def told(self) -> str:
        """The `traceparent` of the engine's last request."""
        return field_of(self.engine.seen[-1], "traceparent")


def field_of(seen: Seen, name: str) -> str:
    found = [value for key_, value in seen.headers.items() if key_.lower() == name]
    assert len(found) <= 1
    return found[0] if found else ""


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "EVERY_S", 0.02)


@asynccontextmanager
async def scene(
    directory: Path, lane: str = "fast lane", *, behaviour: Behaviour | None = None, limit: int = 256,
    is_open: bool = True, queue_timeout_ms: int = 240_000, **policy: object,
) -> AsyncIterator[Scene]:  # fmt: skip
    async with FakeCollector() as collector, FakeUpstream(behaviour) as engine:
        keys = (key("sk-secret-key", name="alice"),)
        routes = table(
            model("m", target_of(engine, max_concurrency=limit, queue_timeout_ms=queue_timeout_ms)),
            keys=keys,
            allow_missing_auth=is_open,
        )
        routes = traced(routes, collector, **policy)
        async with gateway(directory, routes, lane=lane) as running:
            yield Scene(running, engine, collector, routes)


def pair(spans: list[Received]) -> tuple[Received, Received]:
    """The gateway's span and that of its one attempt."""
    server, client = spans
    assert server.is_server and not client.is_server
    assert client.parent_id == server.span_id and client.trace_id == server.trace_id
    assert server.raw.start_time_unix_nano <= client.raw.start_time_unix_nano
    assert client.raw.end_time_unix_nano <= server.raw.end_time_unix_nano
    return server, client


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_is_a_part_of_its_clients_trace_and_its_engine_a_part_of_the_request(
    tmp_path: Path, lane: str, stream: bool
) -> None:
    async with scene(tmp_path, lane) as on:
        headers = SAMPLED | {"authorization": "Bearer sk-secret-key", "x-request-id": "r-1"}
        assert await on.ask(chat(stream=stream), headers) == 200
        server, client = pair(await on.collector.wait_spans(2))
    assert (server.trace_id, server.parent_id, server.raw.trace_state) == (TRACE, PARENT, "vendor=opaque,other=1")
    assert on.told == f"00-{TRACE}-{client.span_id}-01"
    assert field_of(on.engine.seen[-1], "tracestate") == "vendor=opaque,other=1"
    assert server.name == "POST /v1/chat/completions" and client.name == "chat m"
    expected = {
        "http.request.method": "POST", "http.route": CHAT, "http.response.status_code": 200, "llmgw.key": "alice",
        "llmgw.request_id": "r-1", "llmgw.target": "t1", "llmgw.attempts": 1, "llmgw.ended": "complete",
        "llmgw.stream": stream, "gen_ai.operation.name": "chat", "gen_ai.request.model": "m",
        "client.address": "127.0.0.1",
    }  # fmt: skip
    assert server.attributes.items() >= expected.items()
    assert server.attributes["gen_ai.usage.output_tokens"] and not server.is_error
    assert client.attributes["server.port"] == on.engine.port and client.attributes["llmgw.target"] == "t1"
    assert client.attributes["gen_ai.usage.output_tokens"] == server.attributes["gen_ai.usage.output_tokens"]
    assert server.events == (["first_byte", "first_token"] if stream else ["first_byte"])
    assert server.resource["service.name"] == "llmgw" and not client.is_error


@pytest.mark.parametrize("lane", LANES)
async def test_a_request_without_a_trace_begins_one(tmp_path: Path, lane: str) -> None:
    async with scene(tmp_path, lane) as on:
        assert await on.ask(chat()) == 200
        server, client = pair(await on.collector.wait_spans(2))
    assert server.parent_id == "" and int(server.trace_id, 16)
    assert on.told == f"00-{server.trace_id}-{client.span_id}-01"


@pytest.mark.parametrize("lane", LANES)
async def test_what_its_client_does_not_record_is_not_recorded_and_passes_as_it_is(tmp_path: Path, lane: str) -> None:
    async with scene(tmp_path, lane) as on:
        assert await on.ask(chat(), QUIET) == 200
        assert on.told == QUIET["traceparent"] and field_of(on.engine.seen[-1], "tracestate") == "vendor=opaque"
        assert await on.ask(chat(), SAMPLED) == 200
        server, _ = pair(await on.collector.wait_spans(2))
    assert server.trace_id == TRACE and len(on.collector.spans) == 2


@pytest.mark.parametrize("lane", LANES)
async def test_a_share_of_nothing_records_only_what_clients_want(tmp_path: Path, lane: str) -> None:
    async with scene(tmp_path, lane, sample_ratio=0.0) as on:
        assert await on.ask(chat()) == 200
        assert on.told.startswith("00-") and on.told.endswith("-00")
        assert await on.ask(chat(), SAMPLED) == 200
        server, _ = pair(await on.collector.wait_spans(2))
    assert server.trace_id == TRACE


NONSENSE = [
    {"traceparent": "nonsense", "tracestate": "a=1"},
    {"traceparent": f"00-{'0' * 32}-{PARENT}-01", "tracestate": "a=1"},
    {"traceparent": f"ff-{TRACE}-{PARENT}-01"},
    {"tracestate": "a=1"},
]


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize("headers", NONSENSE)
async def test_a_trace_without_sense_is_not_passed_on(tmp_path: Path, lane: str, headers: dict[str, str]) -> None:
    async with scene(tmp_path, lane) as on:
        assert await on.ask(chat(), headers) == 200
        server, client = pair(await on.collector.wait_spans(2))
    assert on.told == f"00-{server.trace_id}-{client.span_id}-01" and server.parent_id == ""
    assert field_of(on.engine.seen[-1], "tracestate") == ""


@pytest.mark.parametrize("lane", LANES)
async def test_without_tracing_what_clients_say_crosses_untouched(tmp_path: Path, lane: str) -> None:
    async with (
        FakeUpstream() as engine,
        gateway(tmp_path, table(model("m", target_of(engine))), lane=lane) as running,
    ):
        await raw_request((running.host, running.port), CHAT, chat(), SAMPLED)
    assert {name: field_of(engine.seen[0], name) for name in SAMPLED} == SAMPLED


@pytest.mark.parametrize("lane", LANES)
async def test_each_attempt_is_a_span_and_says_why_it_failed(tmp_path: Path, lane: str) -> None:
    async with FakeCollector() as collector, FakeUpstream(Behaviour(status=500)) as bad, FakeUpstream() as good:
        gone = socket.socket()
        gone.bind(("127.0.0.1", 0))  # and nobody listens there
        targets = (target("t1", port=gone.getsockname()[1]), target_of(bad, "t2"), target_of(good, "t3"))
        routes = traced(table(model("m", *targets)), collector)
        async with gateway(tmp_path, routes, lane=lane) as running:
            # Targets are asked in turn; whoever begins at the good one has one attempt.
            for number in range(3):
                headers = {"traceparent": f"00-{number + 1:032x}-{PARENT}-01"}
                answer = await raw_request((running.host, running.port), CHAT, chat(), headers)
                assert answer.status == 200
            await collector.wait_for(lambda: sum(span.is_server for span in collector.spans) == 3)
        gone.close()
    failures = {span.attributes["llmgw.target"]: span for span in collector.spans if span.is_error}
    assert failures["t1"].attributes["error.type"] == "connect_failed" and failures["t1"].attributes["llmgw.detail"]
    assert failures["t2"].attributes["error.type"] == "server_error"
    assert failures["t2"].attributes["http.response.status_code"] == 500
    servers = {span.span_id: span for span in collector.spans if span.is_server}
    for server in servers.values():
        clients = [span for span in collector.spans if span.parent_id == server.span_id]
        assert len(clients) == server.attributes["llmgw.attempts"] and not server.is_error
        assert [span.is_error for span in clients] == [True] * (len(clients) - 1) + [False]
        assert server.attributes["llmgw.target"] == "t3"
    # Each engine was told the span of its own attempt.
    for engine, id_ in ((bad, "t2"), (good, "t3")):
        told = {field_of(seen, "traceparent").split("-")[2] for seen in engine.seen}
        assert told == {span.span_id for span in collector.spans if span.attributes["llmgw.target"] == id_
                        and not span.is_server}  # fmt: skip


REFUSALS: list[tuple[bytes, dict[str, str], int, str]] = [
    (chat("none"), {}, 404, "unknown_model"),
    (b"nonsense", {}, 400, "invalid_json"),
    (chat(), {"authorization": "Bearer sk-wrong-key"}, 401, "unauthorized"),
]


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize(("body", "headers", "status", "code"), REFUSALS)
async def test_a_refusal_is_a_span_without_attempts(
    tmp_path: Path, lane: str, body: bytes, headers: dict[str, str], status: int, code: str
) -> None:
    async with scene(tmp_path, lane, is_open=False) as on:
        credential = {"authorization": "Bearer sk-secret-key"}
        assert await on.ask(body, SAMPLED | credential | headers) == status
        (span,) = await on.collector.wait_spans(1)
    assert span.is_server and not span.is_error and span.trace_id == TRACE
    assert span.attributes["error.type"] == code and span.attributes["http.response.status_code"] == status
    assert on.engine.seen == []


@pytest.mark.parametrize("lane", LANES)
async def test_a_request_that_no_target_answers_is_an_error(tmp_path: Path, lane: str) -> None:
    async with scene(tmp_path, lane) as on:
        await on.engine.stop()
        assert await on.ask(chat(), SAMPLED) == 502
        server, client = pair(await on.collector.wait_spans(2))
    assert server.is_error and server.attributes["error.type"] == "upstream_unreachable"
    assert client.is_error and client.attributes["error.type"] == "connect_failed"


@pytest.mark.parametrize("lane", LANES)
async def test_a_client_that_leaves_is_told_and_no_error(tmp_path: Path, lane: str) -> None:
    async with scene(tmp_path, lane, behaviour=Behaviour(pieces=1000, pause_s=0.05)) as on:
        reader, writer = await asyncio.open_connection(on.gateway.host, on.gateway.port)
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntraceparent: %b\r\ncontent-length: %d\r\n\r\n%b"
            % (SAMPLED["traceparent"].encode(), len(chat(stream=True)), chat(stream=True))
        )
        await reader.readuntil(b"w0 ")
        writer.transport.abort()
        server, client = pair(await on.collector.wait_spans(2))
    assert server.attributes["llmgw.ended"] == client.attributes["llmgw.ended"] == "client_gone"
    assert server.events == ["first_byte", "first_token", "cancelled"]
    assert not server.is_error and not client.is_error


@pytest.mark.parametrize("lane", LANES)
async def test_a_stream_that_breaks_is_an_error_of_its_target(tmp_path: Path, lane: str) -> None:
    async with scene(tmp_path, lane, behaviour=Behaviour(break_after=2)) as on:
        assert await on.ask(chat(stream=True), SAMPLED) == 200
        server, client = pair(await on.collector.wait_spans(2))
    assert server.is_error and client.is_error
    assert server.attributes["error.type"] == client.attributes["error.type"] == "upstream_broken"


@pytest.mark.parametrize("lane", LANES)
async def test_time_in_the_queue_is_an_event(tmp_path: Path, lane: str) -> None:
    async with scene(tmp_path, lane, behaviour=Behaviour(head_pause_s=60), limit=1) as on:
        asked = [asyncio.create_task(on.ask(chat(), {"x-request-id": f"r-{number}"})) for number in range(2)]
        await on.engine.wait_for(lambda: on.engine.open == 1)
        await on.gateway.daemon.wait_reports(lambda all_: any(one.waiting for r in all_ for one in r.runtimes.values()))
        on.engine.release()
        assert await asyncio.gather(*asked) == [200, 200]
        spans = await on.collector.wait_spans(4)
    (queued,) = [span for span in spans if "queued" in span.events]
    assert queued.is_server and queued.events == ["queued", "first_byte"]
    assert float(queued.attributes["llmgw.queued_s"]) > 0


async def test_one_that_waited_in_vain_says_so(tmp_path: Path) -> None:
    async with scene(tmp_path, behaviour=Behaviour(head_pause_s=60), limit=1, queue_timeout_ms=50) as on:
        first = asyncio.create_task(on.ask(chat(), QUIET))
        await on.engine.wait_for(lambda: on.engine.open == 1)
        assert await on.ask(chat()) == 429
        (span,) = await on.collector.wait_spans(1)
        on.engine.release()
        assert await first == 200
    assert span.events == ["queued"] and span.attributes["error.type"] == "RUNTIME_QUEUE_TIMEOUT"
    assert not span.is_error


@pytest.mark.parametrize("path", [CHAT, "/v1/messages", "/v1/responses", "/v1/audio/transcriptions"])
async def test_every_way_through_the_gateway_is_traced(tmp_path: Path, path: str) -> None:
    bodies = {
        "/v1/messages": b'{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"x"}]}',
        "/v1/responses": b'{"model":"m","input":"x"}',
        "/v1/audio/transcriptions": b'--b\r\ncontent-disposition: form-data; name="model"\r\n\r\nm\r\n--b--\r\n',
    }
    headers = dict(SAMPLED)
    if path == "/v1/audio/transcriptions":
        headers["content-type"] = "multipart/form-data; boundary=b"
    async with scene(tmp_path) as on:
        if path == "/v1/audio/transcriptions":
            await on.ask(bodies[path], headers, path)  # the engine understands no form: that is an attempt, too
        else:
            assert await on.ask(bodies.get(path, chat()), headers, path) == 200
        server, client = pair(await on.collector.wait_spans(2))
    assert server.trace_id == TRACE and server.attributes["http.route"] == path
    assert on.told == f"00-{TRACE}-{client.span_id}-01"


async def test_no_key_prompt_or_answer_leaves_for_the_collector(tmp_path: Path) -> None:
    secret = "the-word-of-the-prompt"
    async with scene(tmp_path, is_open=False) as on:
        for stream in (False, True):
            for credential in ({"authorization": "Bearer sk-secret-key"}, {"x-api-key": "sk-wrong-key"}):
                body = chat(stream=stream, messages=[{"role": "user", "content": secret}], user=secret)
                await on.ask(body, SAMPLED | credential | {"cookie": secret})
        await on.collector.wait_for(lambda: len(on.collector.spans) >= 6)
    sent = b"".join(on.collector.bodies)
    for word in (secret, "sk-secret-key", "sk-wrong-key", "Paris", "w0"):
        assert word.encode() not in sent
    assert b"alice" in sent


async def wait_metric(on: Scene, holds: Callable[[dict[str, float]], bool]) -> dict[str, float]:
    """The counters of spans, once they satisfy `holds`."""
    async with asyncio.timeout(30):
        while True:
            answer = await raw_request((on.gateway.host, on.gateway.port), "/metrics", method="GET")
            lines = [line.rsplit(" ", 1) for line in answer.body.decode().splitlines() if "llmgw_trace_spans" in line]
            found = {name: float(value) for name, value in lines if not name.startswith("#")}
            if holds(found):
                return found
            await asyncio.sleep(0.02)


async def test_what_is_sent_and_what_is_not_is_counted(tmp_path: Path) -> None:
    async with scene(tmp_path) as on:
        await on.ask(chat())
        found = await wait_metric(on, lambda found: found["llmgw_trace_spans_sent_total"] == 2)
        assert found['llmgw_trace_spans_dropped_total{cause="refused"}'] == 0
        on.collector.conduct.rejects = 1
        await on.ask(chat())
        found = await wait_metric(on, lambda found: found["llmgw_trace_spans_sent_total"] == 3)
        assert found['llmgw_trace_spans_dropped_total{cause="refused"}'] == 1
        on.collector.conduct.status = 403
        await on.ask(chat())
        await wait_metric(on, lambda found: found['llmgw_trace_spans_dropped_total{cause="refused"}'] == 3)


async def test_headers_and_service_are_the_configs(tmp_path: Path) -> None:
    file = tmp_path / "tracing.headers"
    file.write_text(json.dumps({"authorization": "Bearer collector-token"}))
    async with scene(tmp_path, headers_file=str(file), service_name="our-models") as on:
        await on.ask(chat())
        server, _ = pair(await on.collector.wait_spans(2))
    assert on.collector.headers[0]["authorization"] == "Bearer collector-token"
    assert on.collector.headers[0]["content-type"] == "application/x-protobuf" and on.collector.paths == ["/v1/traces"]
    assert server.resource["service.name"] == "our-models" and server.resource["service.instance.id"]


async def ask_until(on: Scene, holds: Callable[[str], bool]) -> None:
    """Ask until what the engine is told satisfies `holds`."""
    async with asyncio.timeout(30):
        while True:
            await on.ask(chat())
            if holds(on.told):
                return


async def test_it_is_turned_on_and_off_and_moved_while_it_serves(tmp_path: Path) -> None:
    async with scene(tmp_path) as on, FakeCollector() as other:
        on.gateway.daemon.publish(msgspec.structs.replace(on.routes, version=2, tracing=TracingPolicy()))
        await ask_until(on, lambda told: not told)
        moved = msgspec.structs.replace(traced(on.routes, other), version=3)
        on.gateway.daemon.publish(moved)
        await ask_until(on, bool)
        await other.wait_spans(2)
    assert {span.trace_id for span in on.collector.spans}.isdisjoint(span.trace_id for span in other.spans)
