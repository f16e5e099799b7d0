"""Slots and queues as clients and engines see them; with real workers where what counts is that there are several."""

import asyncio
import json
import os
import signal
from pathlib import Path

import msgspec
import pytest

from core.activity import ActivityReport
from core.api import RouteTable
from tests.fakes.daemon_socket import FakeDaemon
from tests.fakes.upstream import Behaviour, FakeUpstream
from tests.integration.gateway.harness import (
    CHAT,
    Answer,
    Gateway,
    chat,
    gateway,
    prepare_layout,
    raw_request,
    render_request,
    target_of,
)
from tests.integration.gateway.sim import sim
from tests.integration.gateway.workers import workers
from tests.patience import MOMENT_S
from tests.unit.gateway.tables import model, table, target

SOON_S = 1.0 + MOMENT_S
INTERACTIVE = {"x-llmgw-request-class": "interactive"}


def one_model(engine: FakeUpstream, *, version: int = 1, **limits: object) -> RouteTable:
    """A model of one target with one slot, unless `limits` say otherwise."""
    fields: dict[str, object] = {"max_concurrency": 1} | limits
    routes = table(model("m", target_of(engine, "t1", **fields), aliases=("alias",)))
    return msgspec.structs.replace(routes, version=version)


class Clients:
    """Requests that somebody made and may leave."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._writers: list[asyncio.StreamWriter] = []

    async def ask(self, body: bytes = b"", headers: dict[str, str] | None = None) -> asyncio.StreamReader:
        reader, writer = await asyncio.open_connection(*self._address)
        writer.write(render_request(CHAT, body or chat(), headers))
        self._writers.append(writer)
        return reader

    def leave(self) -> None:
        for writer in self._writers:
            writer.close()
        self._writers.clear()


def total(reports: list[ActivityReport]) -> tuple[int, int]:
    """Active and waiting, over all workers."""
    parts = [part for report in reports for part in report.runtimes.values()]
    return sum(part.active for part in parts), sum(part.waiting for part in parts)


def numbered(number: int) -> bytes:
    return chat(user=str(number))


def order_of(engine: FakeUpstream) -> list[int]:
    """Which requests the engine got, in its order."""
    return [int(json.loads(seen.body)["user"]) for seen in engine.seen]


# Several workers


async def test_two_hundred_clients_of_four_workers_never_have_more_than_three_requests_at_the_engine(
    tmp_path: Path,
) -> None:
    layout = prepare_layout(tmp_path)
    async with sim(tmp_path / "e", "--slots", "64") as engine:
        limits: dict[str, object] = {"max_concurrency": 3, "max_queued_requests": 500}
        routes = table(model("m", target("t1", port=engine.port, key_file=str(engine.key_file), **limits)))
        async with FakeDaemon(layout.daemon_socket, routes), workers(tmp_path, 4) as running:
            await running.wait_children(4)
            body = chat(max_tokens=4)
            answers = await asyncio.gather(*(raw_request(running.address, CHAT, body) for _ in range(200)))
        counts = await engine.stats()
    assert {answer.status for answer in answers} == {200}
    assert (counts["requests"], counts["openMax"]) == (200, 3)


async def test_first_come_is_first_served_over_all_workers(tmp_path: Path) -> None:
    layout = prepare_layout(tmp_path)
    async with (
        FakeUpstream(Behaviour(head_pause_s=30)) as engine,
        FakeDaemon(layout.daemon_socket, one_model(engine, max_queued_requests=50)) as daemon,
        workers(tmp_path, 4) as running,
    ):
        await daemon.wait_reports(lambda reports: len(reports) == 4)
        holder, clients = Clients(running.address), Clients(running.address)
        await holder.ask(numbered(0))
        await engine.wait_for(lambda: engine.open == 1)
        for number in range(1, 16):
            await clients.ask(numbered(number))
            await daemon.wait_reports(lambda reports, waiting=number: total(reports) == (1, waiting))  # type: ignore[misc]
        used = [report for report in daemon.reports.values() if total([report]) != (0, 0)]
        engine.behaviour.head_pause_s = 0.0
        holder.leave()
        async with asyncio.timeout(10):
            await engine.wait_for(lambda: len(engine.seen) == 16)
        clients.leave()
    assert len(used) > 1, "the requests were not spread over workers"
    assert order_of(engine) == list(range(16))


async def test_clients_that_leave_in_hundreds_leave_nothing_behind(tmp_path: Path) -> None:
    layout = prepare_layout(tmp_path)
    async with (
        FakeUpstream(Behaviour(head_pause_s=30)) as engine,
        FakeDaemon(layout.daemon_socket, one_model(engine, max_concurrency=3, max_queued_requests=500)) as daemon,
        workers(tmp_path, 4) as running,
    ):
        clients = Clients(running.address)
        for _ in range(100):
            await clients.ask()
        await daemon.wait_reports(lambda reports: total(reports) == (3, 97))
        clients.leave()
        async with asyncio.timeout(SOON_S):
            await daemon.wait_reports(lambda reports: total(reports) == (0, 0))
        for _ in range(4):
            await clients.ask()
        await daemon.wait_reports(lambda reports: total(reports) == (3, 1))
        assert engine.open == 3
        clients.leave()


async def test_the_slots_of_a_worker_that_is_killed_are_free_within_a_second(tmp_path: Path) -> None:
    layout = prepare_layout(tmp_path)
    async with (
        FakeUpstream(Behaviour(head_pause_s=30)) as engine,
        FakeDaemon(layout.daemon_socket, one_model(engine, max_queued_requests=500)) as daemon,
        workers(tmp_path, 4) as running,
    ):
        await daemon.wait_reports(lambda reports: len(reports) == 4)
        clients = Clients(running.address)
        for _ in range(20):
            await clients.ask()
        await daemon.wait_reports(lambda reports: total(reports) == (1, 19))
        # The one with the slot also has others who wait, and most likely the head of the queue.
        (holder,) = [report for report in daemon.reports.values() if total([report])[0]]
        gone = total([holder])[1] + 1
        os.kill(int(holder.source.partition("-")[0]), signal.SIGKILL)
        async with asyncio.timeout(SOON_S):
            await engine.wait_for(lambda: len(engine.seen) == 2)
        del daemon.reports[holder.source]
        await daemon.wait_reports(lambda reports: total(reports) == (1, 19 - gone))
        clients.leave()


async def test_limits_are_raised_and_lowered_live(tmp_path: Path) -> None:
    layout = prepare_layout(tmp_path)
    async with (
        FakeUpstream(Behaviour(head_pause_s=30)) as engine,
        FakeDaemon(layout.daemon_socket, one_model(engine, max_queued_requests=500)) as daemon,
        workers(tmp_path, 4) as running,
    ):
        clients = Clients(running.address)
        for _ in range(12):
            await clients.ask()
        await daemon.wait_reports(lambda reports: total(reports) == (1, 11))
        daemon.publish(one_model(engine, version=2, max_concurrency=7, max_queued_requests=500))
        async with asyncio.timeout(SOON_S):
            await engine.wait_for(lambda: engine.open == 7)
        daemon.publish(one_model(engine, version=3, max_concurrency=2, max_queued_requests=500))
        await daemon.wait_reports(lambda reports: all(report.version == 3 for report in reports))
        assert total(list(daemon.reports.values())) == (7, 5) and engine.open == 7
        clients.leave()


async def test_a_reload_keeps_the_count_of_what_old_workers_still_serve(tmp_path: Path) -> None:
    layout = prepare_layout(tmp_path)
    async with (
        FakeUpstream(Behaviour(pieces=2, pause_s=100)) as engine,
        FakeDaemon(layout.daemon_socket, one_model(engine)) as daemon,
        workers(tmp_path, 2) as running,
    ):
        await daemon.wait_reports(lambda reports: len(reports) == 2)
        clients = Clients(running.address)
        reader = await clients.ask(chat(stream=True))
        await reader.readuntil(b"data: ")
        old = set(daemon.reports)
        running.process.send_signal(signal.SIGHUP)
        await daemon.wait_reports(lambda reports: len({report.source for report in reports} - old) == 2)
        await clients.ask()
        await daemon.wait_reports(lambda reports: total(reports) == (1, 1))
        assert engine.open == 1
        engine.release()
        assert b"[DONE]" in await reader.read()
        async with asyncio.timeout(SOON_S):
            await engine.wait_for(lambda: len(engine.seen) == 2)
        clients.leave()


# One is enough


def at(gw: Gateway) -> tuple[str, int]:
    return (gw.host, gw.port)


@pytest.mark.parametrize("name", ["m", "alias"], ids=["relayed", "renamed"])
async def test_a_full_queue_says_when_to_come_back(tmp_path: Path, name: str) -> None:
    async with FakeUpstream(Behaviour(head_pause_s=30)) as engine:
        routes = one_model(engine, max_queued_requests=1, queue_retry_after_seconds=7)
        async with gateway(tmp_path, routes) as gw:
            clients = Clients(at(gw))
            for _ in range(2):
                await clients.ask(chat(name))
            await gw.daemon.wait_reports(lambda reports: total(reports) == (1, 1))
            answer = await raw_request(at(gw), CHAT, chat(name))
            clients.leave()
    assert (answer.status, answer.error["code"], answer.headers["retry-after"]) == (429, "RUNTIME_QUEUE_FULL", "7")
    assert (answer.error["type"], answer.error["model"]) == ("rate_limit_error", "m")


async def test_who_waited_too_long_hears_when_to_come_back(tmp_path: Path) -> None:
    async with (
        FakeUpstream(Behaviour(head_pause_s=30)) as engine,
        gateway(tmp_path, one_model(engine, queue_timeout_ms=100)) as gw,
    ):
        clients = Clients(at(gw))
        await clients.ask()
        await engine.wait_for(lambda: engine.open == 1)
        answer = await raw_request(at(gw), CHAT, chat())
        clients.leave()
    assert (answer.status, answer.error["code"], answer.headers["retry-after"]) == (429, "RUNTIME_QUEUE_TIMEOUT", "2")


@pytest.mark.parametrize("header", ["x-llmgw-request-class", "x-lloom-request-class"])
async def test_interactive_requests_are_served_before_standard_ones_that_wait(tmp_path: Path, header: str) -> None:
    async with (
        FakeUpstream(Behaviour(head_pause_s=30)) as engine,
        gateway(tmp_path, one_model(engine)) as gw,
    ):
        holder, clients = Clients(at(gw)), Clients(at(gw))
        await holder.ask(numbered(0))
        await engine.wait_for(lambda: engine.open == 1)
        for number, kind in ((1, "standard"), (2, "batch"), (3, "Interactive")):
            await clients.ask(numbered(number), {header: kind})
            await gw.daemon.wait_reports(lambda reports, waiting=number: total(reports) == (1, waiting))  # type: ignore[misc]
        engine.behaviour.head_pause_s = 0.0
        holder.leave()
        await engine.wait_for(lambda: len(engine.seen) == 4)
        clients.leave()
    assert order_of(engine) == [0, 3, 1, 2]


async def test_a_reserved_slot_serves_an_interactive_request_while_standard_ones_wait(tmp_path: Path) -> None:
    async with (
        FakeUpstream(Behaviour(head_pause_s=30)) as engine,
        gateway(tmp_path, one_model(engine, max_concurrency=2, interactive_reserved_slots=1)) as gw,
    ):
        clients = Clients(at(gw))
        for number in range(2):
            await clients.ask(numbered(number))
        await gw.daemon.wait_reports(lambda reports: total(reports) == (1, 1))
        await clients.ask(numbered(2), INTERACTIVE)
        await engine.wait_for(lambda: engine.open == 2)
        clients.leave()
    assert order_of(engine) == [0, 2]


async def test_requests_that_wait_for_an_engine_that_stops_hear_what_became_of_it(tmp_path: Path) -> None:
    async with (
        FakeUpstream(Behaviour(head_pause_s=30)) as engine,
        gateway(tmp_path, one_model(engine)) as gw,
    ):
        clients = Clients(at(gw))
        await clients.ask()
        await engine.wait_for(lambda: engine.open == 1)
        waiting = asyncio.create_task(raw_request(at(gw), CHAT, chat()))
        await gw.daemon.wait_reports(lambda reports: total(reports) == (1, 1))
        gw.daemon.publish(one_model(engine, version=2, ready=False, state="failed", reason="out of memory"))
        answer = await waiting
        clients.leave()
    assert (answer.status, answer.error["code"], answer.error["reason"]) == (503, "runtime_failed", "out of memory")


async def test_a_request_that_waits_goes_to_the_same_target_at_its_new_address(tmp_path: Path) -> None:
    async with (
        FakeUpstream(Behaviour(head_pause_s=30)) as old,
        FakeUpstream() as new,
        gateway(tmp_path, one_model(old)) as gw,
    ):
        clients = Clients(at(gw))
        await clients.ask()
        await old.wait_for(lambda: old.open == 1)
        waiting = asyncio.create_task(raw_request(at(gw), CHAT, chat()))
        await gw.daemon.wait_reports(lambda reports: total(reports) == (1, 1))
        gw.daemon.publish(one_model(new, version=2))
        await gw.daemon.wait_reports(lambda reports: reports[0].version == 2)
        clients.leave()
        assert (await waiting).status == 200
    assert (len(old.seen), len(new.seen)) == (1, 1)


async def test_two_targets_take_what_each_may_and_the_rest_goes_wherever_a_slot_is_free(tmp_path: Path) -> None:
    async with FakeUpstream(Behaviour(head_pause_s=30)) as one, FakeUpstream(Behaviour(head_pause_s=30)) as two:
        routes = table(model("m", target_of(one, "a", max_concurrency=1), target_of(two, "b", max_concurrency=1)))
        async with gateway(tmp_path, routes) as gw:
            clients = Clients(at(gw))
            for _ in range(2):
                await clients.ask()
            await one.wait_for(lambda: one.open == 1)
            await two.wait_for(lambda: two.open == 1)
            waiting = [asyncio.create_task(raw_request(at(gw), CHAT, chat())) for _ in range(3)]
            await gw.daemon.wait_reports(lambda reports: total(reports) == (2, 3))
            # Only one of the two gets free: who waits for the other goes there.
            two.release()
            answers = await asyncio.gather(*waiting)
            clients.leave()
    assert [(answer.status, answer.headers["x-llmgw-target"]) for answer in answers] == [(200, "b")] * 3


async def test_a_target_that_fails_leaves_its_requests_to_one_that_is_busy(tmp_path: Path) -> None:
    async with FakeUpstream(Behaviour(head_pause_s=0.3)) as engine:
        dead = target("dead", port=1, max_concurrency=1)
        routes = table(model("m", dead, target_of(engine, "alive", max_concurrency=1)))
        async with gateway(tmp_path, routes) as gw:
            answers: list[Answer] = await asyncio.gather(*(raw_request(at(gw), CHAT, chat()) for _ in range(6)))
    assert [(answer.status, answer.headers.get("x-llmgw-target")) for answer in answers] == [(200, "alive")] * 6


async def test_what_a_daemon_counts_as_waiting_includes_who_waits_for_the_load(tmp_path: Path) -> None:
    stopped = table(model("m", target(ready=False, state="stopped", request_startup_wait_ms=30_000)))
    async with gateway(tmp_path, stopped) as gw:
        clients = Clients(at(gw))
        await clients.ask()
        await gw.daemon.wait_reports(lambda reports: total(reports) == (0, 1))
        clients.leave()
        async with asyncio.timeout(SOON_S):
            await gw.daemon.wait_reports(lambda reports: total(reports) == (0, 0))
