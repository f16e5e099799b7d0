"""Several simulated engines that serve one model together, as processes: who waits for whom, and what strangers do."""

import asyncio
import contextlib
import json
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from engines.adapter import EngineSpec, Health, Rendezvous
from engines.registry import get_adapter
from tests.engines.running import RunningEngine, free_port, running

CHAT = "/v1/chat/completions"
REQUEST = {"model": "one", "messages": [{"role": "user", "content": "hello"}]}
JOIN_S = 60.0


def a_rank(rank: int, size: int, port: int, **options: str | float | bool) -> EngineSpec:
    meeting = Rendezvous(rank=rank, size=size, address="127.0.0.1", port=port)
    return EngineSpec("r", "sim", ("one",), 0, options={"joinTimeoutS": JOIN_S, **options}, rendezvous=meeting)


@asynccontextmanager
async def rank_of(spec: EngineSpec, tmp_path: Path) -> AsyncIterator[RunningEngine]:
    """The process of one rank, which nobody has waited for."""
    assert spec.rendezvous is not None
    folder = tmp_path / f"rank-{spec.rendezvous.rank}-{free_port()}"
    folder.mkdir()
    async with running(spec, folder, wait=False) as engine:
        yield engine


async def ended(engine: RunningEngine) -> tuple[int, str]:
    """Exit status and the last line, as soon as it has ended."""
    async with asyncio.timeout(JOIN_S):
        status = await engine.process.wait()
    return status, engine.log.read_text().splitlines()[-1]


async def said(engine: RunningEngine, word: str) -> None:
    """Until the word is in its log."""
    async with asyncio.timeout(JOIN_S):
        while word not in engine.log.read_text():  # noqa: ASYNC110 - a log sends no event
            await asyncio.sleep(0.01)


async def hello(port: int, line: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection that says the line, once somebody listens there."""
    async with asyncio.timeout(JOIN_S):
        while True:
            with contextlib.suppress(ConnectionRefusedError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(line)
                return reader, writer
            await asyncio.sleep(0.01)


async def test_the_head_serves_when_all_have_come_in_whatever_order_and_the_others_serve_nothing(
    tmp_path: Path,
) -> None:
    port = free_port()
    async with AsyncExitStack() as stack:
        ranks = {}
        for rank in (3, 0, 1):
            ranks[rank] = await stack.enter_async_context(rank_of(a_rank(rank, 4, port), tmp_path))
        await said(ranks[0], "sim_meets")
        with pytest.raises(OSError):
            await asyncio.open_connection("127.0.0.1", ranks[0].spec.port)

        ranks[2] = await stack.enter_async_context(rank_of(a_rank(2, 4, port), tmp_path))
        await ranks[0].wait_health(Health.READY)

        assert (await ranks[0].ask(CHAT, REQUEST)).status == 200
        for rank in (1, 2, 3):
            with pytest.raises(OSError):
                await asyncio.open_connection("127.0.0.1", ranks[rank].spec.port)
            assert get_adapter("sim").health_probe(ranks[rank].spec).path == ""


async def test_a_rank_that_does_not_come_fails_the_head_in_time_and_is_named_last(tmp_path: Path) -> None:
    port = free_port()
    async with rank_of(a_rank(1, 4, port), tmp_path) as here, rank_of(a_rank(3, 4, port, joinDelayS=600), tmp_path):
        # It is there, trying, when the head begins to count.
        await said(here, "sim_meets")
        async with rank_of(a_rank(0, 4, port, joinTimeoutS=4), tmp_path) as head:
            status, last = await ended(head)

    assert status == 1
    assert "sim_ranks_missing" in last
    assert "ranks 2, 3 of 4 did not come" in last
    assert "here: ranks 0, 1" in last


async def test_a_worker_whose_head_does_not_come_says_so_and_ends(tmp_path: Path) -> None:
    port = free_port()
    async with rank_of(a_rank(2, 3, port, joinTimeoutS=0.5), tmp_path) as worker:
        status, last = await ended(worker)

    assert status == 1
    assert f"rank 2 could not join at 127.0.0.1 port {port}" in last


@pytest.mark.parametrize("victim", [0, 1])
async def test_a_rank_that_is_killed_ends_the_others_and_they_name_it(tmp_path: Path, victim: int) -> None:
    port = free_port()
    async with AsyncExitStack() as stack:
        ranks = [await stack.enter_async_context(rank_of(a_rank(rank, 3, port), tmp_path)) for rank in range(3)]
        await ranks[0].wait_health(Health.READY)

        ranks[victim].process.send_signal(signal.SIGKILL)
        ends = {rank: await ended(ranks[rank]) for rank in range(3) if rank != victim}

    assert {status for status, _ in ends.values()} == {1}
    named = {rank: last for rank, (_, last) in ends.items() if f"rank {victim} left" in last}
    assert (set(named) if victim == 0 else {0}) <= set(named)
    assert all("sim_rank_left" in last for _, last in ends.values())


async def test_a_rank_that_dies_on_the_way_may_come_again(tmp_path: Path) -> None:
    port = free_port()
    async with rank_of(a_rank(0, 3, port), tmp_path) as head:
        async with rank_of(a_rank(1, 3, port), tmp_path) as first:
            await said(first, "sim_meets")
            first.process.send_signal(signal.SIGKILL)
            await first.process.wait()
        async with rank_of(a_rank(1, 3, port), tmp_path), rank_of(a_rank(2, 3, port), tmp_path):
            await head.wait_health(Health.READY)


async def test_a_waiting_rank_stops_cleanly_when_told_to(tmp_path: Path) -> None:
    for rank in (0, 1):
        async with rank_of(a_rank(rank, 2, free_port()), tmp_path) as engine:
            await said(engine, "sim_meets")
            engine.process.send_signal(signal.SIGTERM)
            status, last = await ended(engine)
        assert (status, "sim_stopped" in last) == (0, True)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"rank":1,"size":9}\n', "this group has 3 ranks, not 9"),
        (b'{"rank":0,"size":3}\n', "rank 0 is not one of 1 to 2"),
        (b'{"rank":-1,"size":3}\n', "rank -1 is not one of"),
        (b'{"rank":99999999999999999999999,"size":3}\n', "is not one of"),
        (b'{"rank":"1","size":3}\n', "no hello"),
        (b'{"rank":1}\n', "no hello"),
        (b"GET / HTTP/1.1\r\n", "no hello"),
        (b"\xff\x00\n", "no hello"),
        (b"[" * 100_000 + b"\n", "no hello"),
        (b"x" * 100_000 + b"\n", "no hello"),
    ],
    ids=lambda value: str(value)[:30],
)
async def test_a_stranger_is_told_why_and_the_group_still_comes_together(
    tmp_path: Path, line: bytes, reason: str
) -> None:
    port = free_port()
    async with rank_of(a_rank(0, 3, port), tmp_path) as head:
        reader, writer = await hello(port, line)
        answer = b""
        with contextlib.suppress(ConnectionResetError):  # so ends a connection on which more was sent than was read
            answer = await asyncio.wait_for(reader.readline(), JOIN_S)
        writer.close()
        assert not answer or reason in json.loads(answer)["refused"]

        async with rank_of(a_rank(1, 3, port), tmp_path), rank_of(a_rank(2, 3, port), tmp_path):
            await head.wait_health(Health.READY)


async def test_a_rank_that_is_here_cannot_be_taken_by_another(tmp_path: Path) -> None:
    port = free_port()
    async with rank_of(a_rank(0, 3, port), tmp_path) as head:
        _, first = await hello(port, b'{"rank":1,"size":3}\n')
        reader, second = await hello(port, b'{"rank":1,"size":3}\n')
        assert "joined already" in json.loads(await asyncio.wait_for(reader.readline(), JOIN_S))["refused"]
        async with rank_of(a_rank(1, 3, port), tmp_path), rank_of(a_rank(2, 3, port), tmp_path):
            first.close()  # its place is free, and the worker that was turned away tries again
            await head.wait_health(Health.READY)
        second.close()


async def test_connections_that_say_nothing_keep_nobody_out(tmp_path: Path) -> None:
    port = free_port()
    async with rank_of(a_rank(0, 2, port), tmp_path) as head:
        silent = [await hello(port, b"") for _ in range(80)]
        async with rank_of(a_rank(1, 2, port), tmp_path):
            await head.wait_health(Health.READY)
        for _, writer in silent:
            writer.close()


async def test_a_head_that_cannot_listen_says_so(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        spec = a_rank(0, 2, taken.getsockname()[1])
        async with rank_of(spec, tmp_path) as head:
            status, last = await ended(head)
        async with rank_of(
            replace(spec, rendezvous=Rendezvous(0, 2, "198.51.100.7", free_port())), tmp_path
        ) as elsewhere:
            other_status, other_last = await ended(elsewhere)

    assert (status, "cannot_listen" in last) == (1, True)
    assert (other_status, "cannot_listen" in other_last) == (1, True)
