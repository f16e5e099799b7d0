"""Sending traces to collectors that are slow, dead or hostile: what is lost is counted, and nothing else happens."""

import asyncio
import collections
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from random import Random

import pytest

from core.log import get_logger
from core.tasks import Backoff, supervise
from gateway.ending import RequestRecord
from gateway.metrics.layout import SpanFate
from gateway.tracing import exporter, otlp
from gateway.tracing.exporter import BATCH, MOST_WAITING, Collector, Encoder, Exporter, Finished
from gateway.tracing.spans import Span
from gateway.tracing.trace import Trace
from tests.fakes.otlp_collector import Conduct, FakeCollector


class Bench:
    """An exporter, and what became of its spans."""

    def __init__(self, url: str, encoder: Encoder = otlp) -> None:
        self.fates: collections.Counter[SpanFate] = collections.Counter()
        self.changed = asyncio.Event()
        collector = Collector(url, {"x-token": "t"}, {"service.name": "s"}, encoder)
        self.exporter = Exporter(collector, get_logger("test"), self._count)
        self._ids = Random(1)

    def _count(self, fate: SpanFate, count: int) -> None:
        self.fates[fate] += count
        self.changed.set()

    def offer(self, count: int = 1) -> None:
        for number in range(count):
            trace = Trace(self._ids, None, "POST", bound=1 << 64)
            trace.end()
            record = RequestRecord(f"r-{number}", "/v1/x", trace.began_s, ended_s=trace.began_s, trace=trace)
            self.exporter.offer(Finished(record, trace))

    async def wait_failing(self) -> None:
        """Return once it has failed, and is still at it."""
        async with asyncio.timeout(30):
            while not self.exporter._is_failing:  # noqa: ASYNC110 - nobody else is told of it
                await asyncio.sleep(0.01)

    async def wait(self, fate: SpanFate, count: int) -> None:
        async with asyncio.timeout(30):
            while self.fates[fate] < count:
                self.changed.clear()
                await self.changed.wait()


@asynccontextmanager
async def bench(url: str, *, close_s: float = 5.0) -> AsyncIterator[Bench]:
    made = Bench(url)
    running = asyncio.create_task(made.exporter.run())
    try:
        yield made
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await made.exporter.close(close_s)


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "EVERY_S", 0.02)


async def test_many_requests_come_in_batches_and_all_of_them() -> None:
    async with FakeCollector() as collector, bench(collector.url) as sending:
        sending.offer(1000)
        await sending.wait(SpanFate.SENT, 1000)
        assert len(collector.spans) == 1000 and collector.posts <= -(-1000 // BATCH) + 1
        assert len({span.trace_id for span in collector.spans}) == 1000
    assert sending.fates == {SpanFate.SENT: 1000}


@pytest.mark.parametrize("conduct", [Conduct(hangs=True), Conduct(endless=True)], ids=["hangs", "endless"])
async def test_what_waits_is_bounded_and_the_rest_is_counted_at_once(conduct: Conduct) -> None:
    async with FakeCollector(conduct) as collector, bench(collector.url, close_s=0.2) as sending:
        sending.offer(1)
        await collector.wait_for(lambda: collector.posts > 0)
        sending.offer(MOST_WAITING + 500)
        assert sending.fates[SpanFate.QUEUE_FULL] >= 500
    kept = sum(count for fate, count in sending.fates.items() if fate is not SpanFate.QUEUE_FULL)
    assert kept + sending.fates[SpanFate.QUEUE_FULL] == MOST_WAITING + 501


async def test_a_collector_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "_SEND_S", 0.05)
    monkeypatch.setattr(exporter, "_LONGEST_PAUSE_S", 0.01)
    async with FakeCollector(Conduct(hangs=True)) as collector, bench(collector.url) as sending:
        sending.offer(3)
        await sending.wait(SpanFate.UNREACHABLE, 3)
        # One that it did not see in time was a try, too.
        assert 0 < collector.posts <= exporter._TRIES
        monkeypatch.setattr(exporter, "_SEND_S", 30.0)
        collector.conduct = Conduct()
        sending.offer(2)
        await sending.wait(SpanFate.SENT, 2)


async def test_one_that_is_not_there_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "_LONGEST_PAUSE_S", 0.05)
    monkeypatch.setattr(exporter, "_TRIES", 10_000)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        async with bench(f"http://127.0.0.1:{bound.getsockname()[1]}/v1/traces") as sending:
            sending.offer(3)
            # Whoever connects to it now is refused.
            await sending.wait_failing()
            async with FakeCollector(sock=bound):
                await sending.wait(SpanFate.SENT, 3)
    assert sending.fates == {SpanFate.SENT: 3}


@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_one_that_is_busy_gets_the_same_again_when_it_says(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "_LONGEST_PAUSE_S", 0.05)
    conduct = Conduct(status=status, headers={"retry-after": "3600"})
    async with FakeCollector(conduct) as collector, bench(collector.url) as sending:
        sending.offer(3)
        await collector.wait_for(lambda: collector.posts > 0)
        collector.conduct = Conduct()
        await sending.wait(SpanFate.SENT, 3)
    assert sending.fates == {SpanFate.SENT: 3}


@pytest.mark.parametrize("status", [400, 401, 404, 500])
async def test_a_refusal_is_final(status: int) -> None:
    async with FakeCollector(Conduct(status=status)) as collector, bench(collector.url) as sending:
        sending.offer(3)
        await sending.wait(SpanFate.REFUSED, 3)
        assert collector.posts == 1


async def test_nobody_is_followed_elsewhere_with_our_headers() -> None:
    async with FakeCollector() as other:
        conduct = Conduct(status=307, headers={"location": other.url})
        async with FakeCollector(conduct) as collector, bench(collector.url) as sending:
            sending.offer(3)
            await sending.wait(SpanFate.REFUSED, 3)
            assert collector.headers[0]["x-token"] == "t"
    assert other.posts == 0


@pytest.mark.parametrize("answer", [b"\xff" * 100, b"<html>", b"\n\x06\x08\xff\xff\xff\xff\x0f"])
async def test_an_answer_without_sense_is_no_complaint_and_no_more_is_lost_than_was_sent(answer: bytes) -> None:
    async with FakeCollector(Conduct(answer=answer)) as collector, bench(collector.url) as sending:
        sending.offer(3)
        await collector.wait_spans(3)
    assert sum(sending.fates.values()) == 3


class Faulty:
    """An encoder that fails once."""

    def __init__(self, error: Exception) -> None:
        self._errors = [error]

    def encode(self, spans: Sequence[Span], resource: Mapping[str, str]) -> bytes:
        if self._errors:
            raise self._errors.pop()
        return otlp.encode(spans, resource)

    def read_rejected(self, body: bytes) -> tuple[int, str]:
        return otlp.read_rejected(body)


@pytest.mark.parametrize("error", [ValueError("a number"), RuntimeError("anything")])
async def test_a_batch_that_cannot_be_encoded_is_counted_and_ends_nothing(error: Exception) -> None:
    async with FakeCollector() as collector:
        sending = Bench(collector.url, Faulty(error))
        living = supervise("traces", sending.exporter.run, get_logger("test"), Backoff(0.01, 0.01))
        running = asyncio.create_task(living)
        sending.offer(2)
        await sending.wait(SpanFate.REFUSED, 2)
        sending.offer(3)
        await sending.wait(SpanFate.SENT, 3)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await sending.exporter.close(5.0)
    assert sending.fates == {SpanFate.REFUSED: 2, SpanFate.SENT: 3}


async def test_what_is_left_at_the_end_is_sent() -> None:
    async with FakeCollector() as collector:
        sending = Bench(collector.url)
        sending.offer(700)
        await sending.exporter.close(30.0)
        assert len(collector.spans) == 700
    assert sending.fates == {SpanFate.SENT: 700}


async def test_a_collector_that_hangs_does_not_keep_a_worker_from_its_end() -> None:
    async with FakeCollector(Conduct(hangs=True)) as collector, asyncio.timeout(30):
        sending = Bench(collector.url)
        sending.offer(10)
        await sending.exporter.close(0.1)
    assert sending.fates == {SpanFate.ENDED: 10}


async def test_spans_under_way_when_the_end_comes_are_not_lost() -> None:
    async with FakeCollector(Conduct(status=503)) as collector:
        sending = Bench(collector.url)
        running = asyncio.create_task(sending.exporter.run())
        sending.offer(5)
        await collector.wait_for(lambda: collector.posts > 0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        collector.conduct = Conduct()
        await sending.exporter.close(30.0)
    assert sending.fates == {SpanFate.SENT: 5}
