"""One of three targets fails in each of the ways in which engines do: who notices, how soon, and when it is back.

No request may fail that another target could have served. What a client is told is read from the answers, what an
engine was asked from the engines.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import pytest

from core.activity import REPORT_EVERY_S
from gateway.ejection import COOLDOWN_S, STREAK
from gateway.silence import SILENT_S
from tests.fakes.daemon_socket import FakeDaemon
from tests.fakes.upstream import Behaviour, FakeUpstream
from tests.integration.gateway.harness import (
    CHAT,
    Answer,
    chat,
    gateway,
    prepare_layout,
    raw_request,
    render_request,
    target_of,
)
from tests.integration.gateway.workers import workers
from tests.patience import MOMENT_S, SOON_S
from tests.unit.gateway.tables import model, table

AT_ONCE = 6
numbers = iter(range(1_000_000))


@dataclass
class Crew:
    """A gateway in front of three engines; the first is the one that fails."""

    address: tuple[str, int]
    engines: list[FakeUpstream]

    @property
    def bad(self) -> FakeUpstream:
        return self.engines[0]

    async def ask(self, **fields: object) -> Answer:
        """A conversation that nobody had before."""
        messages = [{"role": "user", "content": f"question {next(numbers)}"}]
        return await raw_request(self.address, CHAT, chat("m", messages=messages, **fields))

    async def ask_many(self, count: int, **fields: object) -> list[Answer]:
        """So many requests, a few at a time."""
        found: list[Answer] = []

        async def ask_on() -> None:
            while len(found) + AT_ONCE <= count:
                found.append(await self.ask(**fields))

        await asyncio.gather(*(ask_on() for _ in range(AT_ONCE)))
        return found

    async def wait_back(self, limit_s: float) -> float:
        """Ask until the first target answers; how long that took."""
        begun = monotonic()
        async with asyncio.timeout(limit_s):
            while served_by(await self.ask()) != "t0":  # noqa: ASYNC110 - clients ask, at some distance
                await asyncio.sleep(0.05)
        return monotonic() - begun


def served_by(answer: Answer) -> str:
    assert answer.status == 200, answer
    return answer.headers["x-llmgw-target"]


def spread(answers: list[Answer]) -> tuple[set[str], float]:
    """Which targets answered, and how much more the busiest did than the idlest."""
    counts = Counter(served_by(answer) for answer in answers)
    return set(counts), max(counts.values()) / min(counts.values())


@asynccontextmanager
async def crew(tmp_path: Path, *, count: int = 0, **changes: object) -> AsyncIterator[Crew]:
    """`count`: so many real workers; 0: in this process. `changes` are made to every target."""
    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(FakeUpstream(Behaviour(head_pause_s=0.01))) for _ in range(3)]
        routes = table(model("m", *(target_of(each, f"t{n}", **changes) for n, each in enumerate(engines))))
        if count:
            layout = prepare_layout(tmp_path)
            daemon = await stack.enter_async_context(FakeDaemon(layout.daemon_socket, routes))
            running = await stack.enter_async_context(workers(tmp_path, count))
            await daemon.wait_followers(count)
            yield Crew(running.address, engines)
        else:
            gw = await stack.enter_async_context(gateway(tmp_path, routes))
            yield Crew((gw.host, gw.port), engines)


BAD = {
    "refuses": None,
    "hangs": Behaviour(head_pause_s=60),
    "500": Behaviour(status=500),
    "502": Behaviour(status=502),
    "401": Behaviour(status=401),
}


@pytest.mark.parametrize("way", BAD)
async def test_no_request_fails_because_of_one_bad_target_and_it_comes_back(tmp_path: Path, way: str) -> None:
    # Long enough that a machine which is busy with other tests makes no healthy target look silent.
    async with crew(tmp_path, first_byte_timeout_ms=2000 if way == "hangs" else 0) as gw:
        used, ratio = spread(await gw.ask_many(120))
        assert used == {"t0", "t1", "t2"} and ratio <= 1.3
        seen = len(gw.bad.seen)
        behaviour = BAD[way]
        if behaviour is None:
            await gw.bad.stop()
        else:
            gw.bad.behaviour = behaviour
        used, ratio = spread(await gw.ask_many(120))
        assert used == {"t1", "t2"} and ratio <= 1.3
        # Those that were on their way when it was found out, and no more.
        assert len(gw.bad.seen) - seen <= STREAK + AT_ONCE
        gw.bad.behaviour = Behaviour(head_pause_s=0.01)
        for engine in gw.engines:
            # All of them: one that answers sooner than the others is rightly asked more often.
            engine.release()
        if behaviour is None:
            await gw.bad.start()
        # A probe that it failed while it was bad may have doubled the time.
        assert await gw.wait_back(3 * COOLDOWN_S + MOMENT_S) <= 2 * COOLDOWN_S + MOMENT_S
        used, ratio = spread(await gw.ask_many(240))
        assert used == {"t0", "t1", "t2"} and ratio <= 1.3


async def test_a_target_that_refuses_is_out_at_once_in_all_workers(tmp_path: Path) -> None:
    async with crew(tmp_path, count=3) as gw:
        await gw.bad.stop()
        used, ratio = spread(await gw.ask_many(180))
        assert used == {"t1", "t2"} and ratio <= 1.3
        await gw.bad.start()
        await gw.wait_back(2 * COOLDOWN_S + MOMENT_S)
        used, ratio = spread(await gw.ask_many(240))
        assert used == {"t0", "t1", "t2"} and ratio <= 1.3
    lines = [line for line in (tmp_path / "gateway.log").read_text().splitlines() if "target_" in line]
    assert sum("target_ejected target=t0 because=connect_failed" in line for line in lines) >= 1
    assert sum("target_readmitted target=t0" in line for line in lines) >= 1


async def test_a_full_target_is_left_alone_for_as_long_as_it_says_and_is_not_out(tmp_path: Path) -> None:
    async with crew(tmp_path) as gw:
        gw.bad.behaviour = Behaviour(status=429, headers={"retry-after": "2"})
        begun = monotonic()
        used, _ = spread(await gw.ask_many(60))
        assert used == {"t1", "t2"}
        # Each rest costs the request that finds out, and those beside it, one detour.
        assert len(gw.bad.seen) <= AT_ONCE * (1 + (monotonic() - begun) // 2)
        gw.bad.behaviour = Behaviour()
        assert await gw.wait_back(10) <= 2 + MOMENT_S


async def test_when_all_are_full_the_client_hears_it_from_an_engine(tmp_path: Path) -> None:
    async with crew(tmp_path) as gw:
        for engine in gw.engines:
            engine.behaviour = Behaviour(status=429, headers={"retry-after": "7"}, body=b'{"error":{"message":"full"}}')
        answers = [await gw.ask() for _ in range(4)]
        assert {(answer.status, answer.headers["retry-after"]) for answer in answers} == {(429, "7")}
        for engine in gw.engines:
            engine.behaviour = Behaviour()
        # They rest for another few seconds, but there is nobody else.
        assert (await gw.ask()).status == 200


async def test_a_target_whose_streams_break_is_out_after_a_few(tmp_path: Path) -> None:
    async with crew(tmp_path) as gw:
        gw.bad.behaviour = Behaviour(break_after=2)
        answers = [await gw.ask(stream=True) for _ in range(40)]
        broken = [answer for answer in answers if b"[DONE]" not in answer.body]
        assert len(broken) == STREAK
        assert all(served_by(answer) == "t0" and b"upstream_broken" in answer.body for answer in broken)


async def test_a_target_that_dies_in_the_middle_of_a_stream_costs_its_streams_alone(tmp_path: Path) -> None:
    async with crew(tmp_path) as gw:
        gw.bad.behaviour = Behaviour(pieces=1000, pause_s=0.05)
        asking = []
        while not gw.bad.open:
            asking.append(asyncio.create_task(gw.ask(stream=True)))
            await asyncio.wait(asking, timeout=0.05)
        await gw.bad.stop()
        used, _ = spread(await gw.ask_many(40))
        assert used == {"t1", "t2"}
        ends = await asyncio.gather(*asking)
        assert [b"upstream_broken" in answer.body for answer in ends] == [served_by(each) == "t0" for each in ends]
        assert [b"[DONE]" in answer.body for answer in ends] == [served_by(each) != "t0" for each in ends]


async def test_a_silent_target_is_passed_by_within_ten_seconds_and_its_stream_goes_on(tmp_path: Path) -> None:
    async with crew(tmp_path, max_concurrency=1000) as gw:
        gw.bad.behaviour = Behaviour(head_pause_s=60)
        asking = []
        while not gw.bad.open:
            asking.append(asyncio.create_task(gw.ask(stream=True)))
            await asyncio.wait(asking, timeout=0.05)
        begun = monotonic()
        async with asyncio.timeout(60):
            while monotonic() - begun < SILENT_S + REPORT_EVERY_S + MOMENT_S:
                done = [task for task in asking if task.done()]
                assert all(task.result().status == 200 for task in done)
                await asyncio.sleep(0.1)
        seen = len(gw.bad.seen)
        used, _ = spread(await gw.ask_many(60, stream=True))
        assert used == {"t1", "t2"} and len(gw.bad.seen) == seen
        gw.bad.behaviour = Behaviour()
        gw.bad.release()
        # Who waited for long has had a head before it was known whose answer it is.
        assert all(answer.status == 200 and b"[DONE]" in answer.body for answer in await asyncio.gather(*asking))
        await gw.wait_back(3 * REPORT_EVERY_S + MOMENT_S)


async def test_all_turns_of_a_conversation_are_answered_by_one_target_whichever_worker_is_asked(tmp_path: Path) -> None:
    async with crew(tmp_path, count=3) as gw:
        used = Counter[frozenset[str]]()
        # No more requests in all than a target may be ahead by (`AHEAD_ALONE`): workers know only their own past, and
        # which of them begins a conversation is chance; with more, a busy target would be left, as it should be.
        for conversation in range(4):
            messages: list[dict[str, str]] = [{"role": "user", "content": f"about {conversation}"}]
            targets = set()
            for turn in range(4):
                answer = await raw_request(gw.address, CHAT, chat(messages=messages))
                targets.add(served_by(answer))
                messages += [{"role": "assistant", "content": f"a{turn}"}, {"role": "user", "content": f"and {turn}"}]
            used[frozenset(targets)] += 1
        assert all(len(targets) == 1 for targets in used), used
        assert len(used) > 1, "every conversation went to the same target"


@pytest.mark.parametrize("kind", ["relayed", "edited"])
async def test_an_answer_that_does_not_begin_in_time_is_a_504_where_nobody_else_is(tmp_path: Path, kind: str) -> None:
    changes: dict[str, object] = {"first_byte_timeout_ms": 300}
    if kind == "edited":
        changes["upstream_model"] = "other"
    async with (
        FakeUpstream(Behaviour(head_pause_s=60)) as engine,
        gateway(tmp_path, table(model("m", target_of(engine, "t0", **changes)))) as gw,
    ):
        answer = await raw_request((gw.host, gw.port), CHAT, chat())
        assert (answer.status, answer.error["code"]) == (504, "upstream_timed_out")
        async with asyncio.timeout(SOON_S):
            await engine.wait_for(lambda: engine.abandoned == 1)


@pytest.mark.parametrize("kind", ["relayed", "edited"])
async def test_a_stream_that_pauses_for_too_long_is_broken_off(tmp_path: Path, kind: str) -> None:
    changes: dict[str, object] = {"between_bytes_timeout_ms": 300}
    if kind == "edited":
        changes["upstream_model"] = "other"
    async with (
        FakeUpstream(Behaviour(pause_s=60)) as engine,
        gateway(tmp_path, table(model("m", target_of(engine, "t0", **changes)))) as gw,
    ):
        reader, writer = await asyncio.open_connection(gw.host, gw.port)
        writer.write(render_request(CHAT, chat(stream=True)))
        async with asyncio.timeout(10):
            body = await reader.read()
        writer.close()
        assert b"w0" in body and b"upstream_broken" in body and b"[DONE]" not in body
        assert json.loads(body.rpartition(b"data: ")[2].partition(b"\n")[0])["error"]["code"] == "upstream_broken"
