"""Traces from the gateway as it is deployed: gunicorn's workers, each with what it has to send."""

import asyncio
import signal
from pathlib import Path

from tests.fakes.daemon_socket import FakeDaemon
from tests.fakes.otlp_collector import Conduct, FakeCollector
from tests.fakes.upstream import FakeUpstream
from tests.integration.gateway.harness import CHAT, chat, prepare_layout, raw_request, target_of
from tests.integration.gateway.test_tracing import traced
from tests.integration.gateway.workers import workers
from tests.unit.gateway.tables import model, table

_PROTOBUF = "google/_upb"


def loads_protobuf(pid: int) -> bool:
    return _PROTOBUF in Path(f"/proc/{pid}/maps").read_text()


async def test_every_worker_sends_what_it_has_before_it_ends(tmp_path: Path) -> None:
    async with (
        FakeCollector() as collector,
        FakeUpstream() as engine,
        FakeDaemon(prepare_layout(tmp_path).daemon_socket, traced(table(model("m", target_of(engine))), collector)),
        workers(tmp_path, 2) as running,
    ):
        async with asyncio.timeout(30):
            while not all(loads_protobuf(pid) for pid in await running.wait_children(2)):  # noqa: ASYNC110 - the kernel
                await asyncio.sleep(0.02)
        answers = await asyncio.gather(*(raw_request(running.address, CHAT, chat()) for _ in range(60)))
        assert {answer.status for answer in answers} == {200}
        running.process.send_signal(signal.SIGTERM)
        assert await running.process.wait() == 0
        assert len(collector.spans) == 120
    assert len({span.span_id for span in collector.spans}) == 120
    assert len({span.trace_id for span in collector.spans}) == 60


async def test_a_reload_loses_no_span(tmp_path: Path) -> None:
    async with (
        FakeCollector() as collector,
        FakeUpstream() as engine,
        FakeDaemon(prepare_layout(tmp_path).daemon_socket, traced(table(model("m", target_of(engine))), collector)),
        workers(tmp_path, 2) as running,
    ):
        for _ in range(2):
            await asyncio.gather(*(raw_request(running.address, CHAT, chat()) for _ in range(20)))
            old = running.children()
            running.process.send_signal(signal.SIGHUP)
            await running.wait_gone(old)
        await collector.wait_spans(80)


async def test_a_collector_that_hangs_holds_up_neither_requests_nor_the_end(tmp_path: Path) -> None:
    async with (
        FakeCollector(Conduct(hangs=True)) as collector,
        FakeUpstream() as engine,
        FakeDaemon(prepare_layout(tmp_path).daemon_socket, traced(table(model("m", target_of(engine))), collector)),
        workers(tmp_path, 1) as running,
    ):
        await raw_request(running.address, CHAT, chat())
        await collector.wait_for(lambda: collector.posts > 0)
        answers = await asyncio.gather(*(raw_request(running.address, CHAT, chat()) for _ in range(30)))
        assert {answer.status for answer in answers} == {200}
        running.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            assert await running.process.wait() == 0


async def test_without_tracing_nothing_of_it_is_loaded(tmp_path: Path) -> None:
    async with (
        FakeUpstream() as engine,
        FakeDaemon(prepare_layout(tmp_path).daemon_socket, table(model("m", target_of(engine)))),
        workers(tmp_path, 1) as running,
    ):
        assert (await raw_request(running.address, CHAT, chat())).status == 200
        (pid,) = running.children()
        assert not loads_protobuf(pid)
