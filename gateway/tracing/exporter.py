"""Sends traces to their collector, a batch at a time, beside the requests and never in their way.

What waits is bounded, and so is everything about an answer: its time, its length, where it comes from (nobody is
redirected). A collector that is slow, dead or hostile costs spans, which are counted, and nothing else. Spans are made
and encoded in a thread, a few at a time: who holds the interpreter for long delays requests from any thread.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from core.errors import LlmgwError
from core.http.client import HttpClient, Reply
from core.http.verdict import read_retry_after
from core.log import EventLogger
from gateway.ending import RequestRecord
from gateway.metrics.layout import SpanFate
from gateway.tracing.spans import Span, build_spans
from gateway.tracing.trace import Trace

MOST_WAITING = 2048
"""Requests whose spans wait to be sent; those of one that comes then are dropped."""
BATCH = 256
EVERY_S = 1.0
_SLICE = 8
"""Requests that are encoded in one go: about a millisecond."""
_SEND_S = 10.0
_ANSWER_BYTES = 64 << 10
_TRIES = 5
_LONGEST_PAUSE_S = 30.0
_AGAIN = frozenset({429, 502, 503, 504})
"""Statuses after which the protocol has the same sent again."""


class Encoder(Protocol):
    """`gateway.tracing.otlp`."""

    def encode(self, spans: Sequence[Span], resource: Mapping[str, str]) -> bytes: ...

    def read_rejected(self, body: bytes) -> tuple[int, str]: ...


@dataclass(frozen=True, slots=True)
class Collector:
    """Where to, and as whom."""

    url: str
    headers: Mapping[str, str]
    """Secrets, maybe."""
    resource: Mapping[str, str]
    encoder: Encoder

    def __repr__(self) -> str:
        return f"Collector({self.url})"


@dataclass(frozen=True, slots=True)
class Finished:
    """A request that is over."""

    record: RequestRecord
    trace: Trace

    @property
    def spans(self) -> int:
        """How many it becomes."""
        return 1 + sum(1 for asked in self.trace.asked if asked.ended_s)


class Refused(Exception):
    """The collector does not take it, and would not take it again either."""


class Exporter:
    """One worker's, for one collector."""

    def __init__(self, collector: Collector, log: EventLogger, count: Callable[[SpanFate, int], None]) -> None:
        self._collector = collector
        self._log = log
        self._count = count
        self._http = HttpClient()
        self._waiting: deque[Finished] = deque()
        self._under_way: list[Finished] = []
        self._some = asyncio.Event()
        self._enough = asyncio.Event()
        self._is_failing = False

    def offer(self, finished: Finished) -> None:
        """Have it sent; at once forgotten where too many wait."""
        if len(self._waiting) >= MOST_WAITING:
            self._count(SpanFate.QUEUE_FULL, finished.spans)
            return
        self._waiting.append(finished)
        self._some.set()
        if len(self._waiting) >= BATCH:
            self._enough.set()

    async def run(self) -> None:
        """Until cancelled; then `close` sends what is left. Begun again after a fault, it goes on behind the batch."""
        self._drop(SpanFate.REFUSED)
        while True:
            if not self._waiting:
                await self._some.wait()
            try:
                async with asyncio.timeout(EVERY_S):
                    await self._enough.wait()
            except TimeoutError:
                pass
            self._some.clear()
            self._enough.clear()
            while self._take():
                await self._send_until_over()

    async def close(self, timeout_s: float) -> None:
        """Send what waits, once, for at most so long; what is left then is counted."""
        try:
            async with asyncio.timeout(timeout_s):
                while self._under_way or self._take():
                    await self._send()
                    self._under_way = []
        except (TimeoutError, LlmgwError, Refused):
            pass
        self._under_way += self._waiting
        self._waiting.clear()
        self._drop(SpanFate.ENDED)
        await self._http.close()

    def _take(self) -> bool:
        """The next batch; it is under way until it is over. False: nothing waits."""
        waiting = self._waiting
        self._under_way = [waiting.popleft() for _ in range(min(len(waiting), BATCH))]
        return bool(self._under_way)

    async def _send_until_over(self) -> None:
        """Send what is under way, again where that may help. It stays there when this is cancelled."""
        fate = SpanFate.UNREACHABLE
        for attempt in range(_TRIES):
            try:
                pause_s = await self._send()
            except LlmgwError as error:
                pause_s = 2.0**attempt
                self._complain(error.message)
            except Refused as error:
                fate = SpanFate.REFUSED
                self._complain(str(error))
                break
            if pause_s is None:
                self._under_way = []
                return
            if attempt < _TRIES - 1:
                await asyncio.sleep(min(pause_s, _LONGEST_PAUSE_S) * random.uniform(0.8, 1.2))
        self._drop(fate)

    def _drop(self, fate: SpanFate) -> None:
        """Give up what is under way."""
        if self._under_way:
            self._count(fate, sum(finished.spans for finished in self._under_way))
        self._under_way = []

    async def _send(self) -> float | None:
        """Once. Returns after how many seconds to come back, None: it is there. Raises: LlmgwError, Refused."""
        spans = sum(finished.spans for finished in self._under_way)
        try:
            parts = [
                await asyncio.to_thread(self._encode, self._under_way[begin : begin + _SLICE])
                for begin in range(0, len(self._under_way), _SLICE)
            ]
        except (TypeError, ValueError) as error:
            raise Refused(f"spans that cannot be encoded: {error}") from error
        reply = await self._http.fetch(
            "POST", self._collector.url,
            headers={**self._collector.headers, "content-type": "application/x-protobuf"},
            body=b"".join(parts), timeout_s=_SEND_S, limit_bytes=_ANSWER_BYTES,
        )  # fmt: skip
        if reply.status in _AGAIN:
            self._complain(f"{self._collector.url} answered {reply.status}")
            return _pause_of(reply)
        if not 200 <= reply.status < 300:
            raise Refused(f"{self._collector.url} answered {reply.status}")
        rejected, why = self._collector.encoder.read_rejected(reply.body)
        rejected = min(rejected, spans)
        self._count(SpanFate.SENT, spans - rejected)
        if rejected:
            self._count(SpanFate.REFUSED, rejected)
            self._complain(f"{self._collector.url} rejected {rejected} of {spans} spans: {why}")
        elif self._is_failing:
            self._is_failing = False
            self._log.info("traces_sent_again", collector=self._collector.url)
        return None

    def _encode(self, requests: Sequence[Finished]) -> bytes:
        spans = [span for finished in requests for span in build_spans(finished.record, finished.trace)]
        return self._collector.encoder.encode(spans, self._collector.resource)

    def _complain(self, reason: str) -> None:
        """Once for each time that it begins to fail."""
        if not self._is_failing:
            self._log.warning("traces_not_sent", reason=reason)
        self._is_failing = True


def _pause_of(reply: Reply) -> float:
    """What a collector that is busy asks for; else a second."""
    headers = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in reply.headers.items()]
    return read_retry_after(headers) or 1.0
