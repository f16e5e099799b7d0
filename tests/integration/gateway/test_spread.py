"""A burst for one model with sixteen replicas, over the gateway's processes as they are deployed."""

import asyncio
import json
import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from tests.fakes.daemon_socket import FakeDaemon
from tests.fakes.upstream import Behaviour, FakeUpstream
from tests.integration.gateway.harness import CHAT, prepare_layout, render_request, target_of
from tests.integration.gateway.jobs import until
from tests.integration.gateway.workers import workers
from tests.unit.gateway.tables import model, table

REPLICAS = 16
REQUESTS = 640
MOST = 1.3
LONG_S = 120.0


@pytest.fixture(autouse=True)
def _many_files() -> Iterator[None]:
    """Each request has an end here and another at an engine that is here, too."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@asynccontextmanager
async def replicas() -> AsyncIterator[list[FakeUpstream]]:
    """Engines that answer nobody until they are told to."""
    async with AsyncExitStack() as stack:
        behaviour = Behaviour(head_pause_s=LONG_S)
        yield [await stack.enter_async_context(FakeUpstream(behaviour)) for _ in range(REPLICAS)]


async def test_a_burst_of_conversations_from_a_cold_start_is_spread_evenly(tmp_path: Path) -> None:
    async with replicas() as engines:
        targets = [target_of(engine, f"n{number}/m") for number, engine in enumerate(engines)]
        async with (
            FakeDaemon(prepare_layout(tmp_path).daemon_socket, table(model("m", *targets))) as daemon,
            workers(tmp_path, 2, activated=False) as running,
            asyncio.timeout(LONG_S),
        ):
            await daemon.wait_followers(2)

            async def ask(number: int) -> bytes:
                messages = [{"role": "user", "content": f"question {number} " + "word " * 600}]
                body = json.dumps({"model": "m", "messages": messages}).encode()
                reader, writer = await asyncio.open_connection(*running.address)
                writer.write(render_request(CHAT, body, {"connection": "close"}))
                answer = await reader.read()
                writer.close()
                return answer[:12]

            asked = [asyncio.create_task(ask(number)) for number in range(REQUESTS)]

            async def all_are_there() -> bool:
                return sum(engine.open for engine in engines) == REQUESTS

            await until(all_are_there, LONG_S)
            for engine in engines:
                engine.release()
            assert {await each for each in asked} == {b"HTTP/1.1 200"}
        counts = [len(engine.seen) for engine in engines]
    assert sum(counts) == REQUESTS
    assert max(counts) / min(counts) <= MOST, counts
