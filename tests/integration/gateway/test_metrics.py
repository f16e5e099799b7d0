"""Metrics over real workers: exact, whichever answers, and never going back when one is killed or all are replaced."""

import asyncio
import json
import os
import signal
from pathlib import Path
from time import monotonic

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.fakes.daemon_socket import FakeDaemon
from tests.fakes.upstream import Behaviour, FakeUpstream
from tests.integration.gateway.harness import (
    CHAT,
    chat,
    gateway,
    prepare_layout,
    raw_request,
    render_request,
    target_of,
)
from tests.integration.gateway.workers import Workers, workers
from tests.patience import SOON_S
from tests.unit.gateway.tables import key, model, table

Samples = dict[tuple[str, ...], float]
LABELS = ("runtime", "model", "target", "status", "outcome", "code", "cause", "why", "state", "standing", "le")


async def scrape(address: tuple[str, int], path: str = "/metrics", **headers: str) -> Samples:
    """Sample's name and the values of its labels, in the order of `LABELS` -> value."""
    answer = await raw_request(address, path, method="GET", headers=headers)
    assert answer.status == 200, answer
    assert answer.headers["content-type"].startswith("text/plain")
    families = text_string_to_metric_families(answer.body.decode())
    samples = [sample for family in families for sample in family.samples]
    return {
        (each.name, *(each.labels[label] for label in LABELS if label in each.labels)): each.value for each in samples
    }


async def wait_for(address: tuple[str, int], name: tuple[str, ...], value: float) -> Samples:
    """The samples, once this one is as said: a request is counted when it has really ended."""
    async with asyncio.timeout(SOON_S):
        while True:
            found = await scrape(address)
            if found.get(name) == value:
                return found
            assert found.get(name, 0) < value, {each: found[each] for each in found if each[0] == name[0]}
            await asyncio.sleep(0.05)


COMPLETE = ("llmgw_requests_total", "m", "t1", "2xx", "complete")


async def ask(running: Workers, count: int) -> None:
    answers = await asyncio.gather(*(raw_request(running.address, CHAT, chat()) for _ in range(count)))
    assert {answer.status for answer in answers} == {200}


async def test_any_worker_tells_what_all_have_counted(tmp_path: Path) -> None:
    layout = prepare_layout(tmp_path)
    async with FakeUpstream() as engine:
        routes = table(model("m", target_of(engine)))
        async with FakeDaemon(layout.daemon_socket, routes) as daemon, workers(tmp_path, 3) as running:
            await daemon.wait_followers(3)
            await ask(running, 60)
            await raw_request(running.address, CHAT, chat("made up"))
            for _ in range(9):
                found = await wait_for(running.address, COMPLETE, 60)
                assert found["llmgw_prompt_tokens_total", "m", "t1"] == 60
                assert found["llmgw_refused_total", "(unknown)", "unknown_model"] == 1
                assert found["llmgw_request_duration_seconds_count", "m", "t1"] == 60
                assert found["llmgw_gateway_workers",] == 3
                assert found["llmgw_gateway_resident_memory_bytes",] > 30 << 20
                assert found["llmgw_runtime_state", "r1", "running"] == 1


@pytest.mark.parametrize("how", ["kill", "reload"])
async def test_no_counter_goes_back_or_counts_twice_when_workers_are_replaced(tmp_path: Path, how: str) -> None:
    layout = prepare_layout(tmp_path)
    async with FakeUpstream() as engine:
        routes = table(model("m", target_of(engine)))
        async with FakeDaemon(layout.daemon_socket, routes), workers(tmp_path, 2) as running:
            asked = 0
            for _ in range(3):
                await ask(running, 20)
                asked += 20
                before = await wait_for(running.address, COMPLETE, asked)
                old = running.children()
                if how == "kill":
                    os.kill(min(old), signal.SIGKILL)
                    await running.wait_children(2, without=min(old))
                else:
                    running.process.send_signal(signal.SIGHUP)
                    async with asyncio.timeout(SOON_S):
                        while len(running.children() - old) < 2 or running.children() & old:  # noqa: ASYNC110
                            await asyncio.sleep(0.02)
                await running.wait_ready()
                after = await wait_for(running.address, COMPLETE, asked)
                counters = [name for name in before if name[0].endswith(("_total", "_bucket", "_count", "_sum"))]
                assert {name: after[name] for name in counters} == {name: before[name] for name in counters}
            await ask(running, 20)
            await wait_for(running.address, COMPLETE, asked + 20)
            # The last one that was started may be at its imports still.
            await wait_for(running.address, ("llmgw_gateway_workers",), 2)


async def test_a_client_that_leaves_is_a_cancellation_and_what_was_written_for_it_is_wasted(tmp_path: Path) -> None:
    async with (
        FakeUpstream(Behaviour(pieces=1000, pause_s=0.02)) as engine,
        gateway(tmp_path, table(model("m", target_of(engine)))) as gw,
    ):
        address = (gw.host, gw.port)
        reader, writer = await asyncio.open_connection(*address)
        writer.write(render_request(CHAT, chat(stream=True)))
        await reader.readuntil(b"w5")
        during = await scrape(address)
        assert (during["llmgw_target_in_flight", "t1"], during["llmgw_target_waiting", "t1"]) == (1, 0)
        writer.close()
        found = await wait_for(address, ("llmgw_cancelled_total", "m", "t1"), 1)
        assert found["llmgw_wasted_tokens_total", "m", "t1"] >= 5
        assert found["llmgw_estimated_tokens_total", "m", "t1"] >= 5
        assert found["llmgw_target_in_flight", "t1"] == 0
        assert found["llmgw_requests_total", "m", "t1", "2xx", "client_gone"] == 1


@pytest.mark.parametrize("name", ["m", "alias"], ids=["relayed", "edited"])
async def test_a_streams_times_are_those_of_its_tokens(tmp_path: Path, name: str) -> None:
    async with (
        FakeUpstream(Behaviour(pieces=11, head_pause_s=0.3, pause_s=0.05)) as engine,
        gateway(tmp_path, table(model("m", target_of(engine), aliases=("alias",)))) as gw,
    ):
        begun_s = monotonic()
        await raw_request((gw.host, gw.port), CHAT, chat(name, stream=True))
        took_s = monotonic() - begun_s
        found = await wait_for((gw.host, gw.port), ("llmgw_time_to_first_token_seconds_count", "m", "t1"), 1)
        first_s = found["llmgw_time_to_first_token_seconds_sum", "m", "t1"]
        assert 0.3 <= first_s < took_s - 10 * 0.05
        assert 0.03 <= found["llmgw_inter_token_seconds_sum", "m", "t1"] <= (took_s - first_s) / 5


async def test_retries_failures_and_ejections_are_told(tmp_path: Path) -> None:
    async with FakeUpstream() as good, FakeUpstream() as bad:
        await bad.stop()
        routes = table(model("m", target_of(bad, "bad"), target_of(good, "good")))
        async with gateway(tmp_path, routes) as gw:
            address = (gw.host, gw.port)
            for _ in range(6):
                assert (await raw_request(address, CHAT, chat())).status == 200
            found = await wait_for(address, ("llmgw_requests_total", "m", "good", "2xx", "complete"), 6)
            assert found["llmgw_retries_total", "m", "good"] == 1
            assert found["llmgw_target_failures_total", "bad", "connect_failed"] == 1
            assert found["llmgw_target_ejections_total", "bad", "connect_failed"] == 1
            assert found["llmgw_target_standing", "bad", "out"] == found["llmgw_target_standing", "good", "good"] == 1
            routing = json.loads((await raw_request(address, "/gateway/routing", method="GET")).body)
            assert [each["target"] for each in routing["targetBackoffs"]] == ["bad"]
            assert [each["standing"] for each in routing["models"][0]["targets"]] == ["out", "good"]
            view = json.loads((await raw_request(address, "/gateway/metrics?model=m", method="GET")).body)
            assert (view["totals"]["requests"], view["totals"]["retries"]) == (6, 1)


async def test_the_rest_is_told_while_the_daemon_is_away(tmp_path: Path) -> None:
    async with FakeUpstream() as engine, gateway(tmp_path, table(model("m", target_of(engine)))) as gw:
        await gw.daemon.stop()
        found = await scrape((gw.host, gw.port))
        assert ("llmgw_target_slots", "t1") in found
        assert not any(name[0].startswith("llmgw_runtime") for name in found)


@pytest.mark.parametrize("path", ["/metrics", "/gateway/metrics", "/gateway/routing"])
async def test_only_an_admin_key_opens_it_where_there_is_one(tmp_path: Path, path: str) -> None:
    keys = (key("sk-user", name="user"), key("sk-admin", "admin", name="boss"))
    async with FakeUpstream() as engine, gateway(tmp_path, table(model("m", target_of(engine)), keys=keys)) as gw:
        address = (gw.host, gw.port)
        for headers in ({}, {"authorization": "Bearer sk-user"}, {"authorization": "Bearer wrong"}):
            assert (await raw_request(address, path, method="GET", headers=headers)).status == 401
        answer = await raw_request(address, path, method="GET", headers={"authorization": "Bearer sk-admin"})
        assert answer.status == 200
        assert b"sk-" not in answer.body
        # A page of another site may not read it through its visitor's browser.
        foreign = {"authorization": "Bearer sk-admin", "origin": "https://evil.example"}
        assert (await raw_request(address, path, method="GET", headers=foreign)).status == 403
