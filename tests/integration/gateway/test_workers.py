"""The gateway as processes: two workers that know the same, are killed, drain, and are seen by the official SDK."""

import asyncio
import json
import os
import signal
from pathlib import Path
from statistics import median
from time import monotonic

import msgspec
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam

from tests.fakes.daemon_socket import FakeDaemon
from tests.fakes.upstream import Behaviour, FakeUpstream
from tests.integration.gateway.harness import (
    CHAT,
    chat,
    prepare_layout,
    raw_request,
    render_request,
    target_of,
    wait_saved,
)
from tests.integration.gateway.workers import Workers, workers
from tests.patience import MOMENT_S, SOON_S
from tests.unit.gateway.tables import key, model, table, target

SEEN_BY_ALL_S = 0.1
"""And what it takes to ask all of them, which on a busy machine is more."""


async def models_by_worker(running: Workers, count: int) -> dict[int, list[str]]:
    """What each worker lists, asked on connections that are kept until every worker had one."""
    found: dict[int, list[str]] = {}
    async with asyncio.timeout(SOON_S):
        while len(found) < count:
            reader, writer = await asyncio.open_connection(*running.address)
            writer.write(render_request("/health", method="GET") + render_request("/v1/models", method="GET"))
            first, second = await read_json(reader), await read_json(reader)
            found[int(str(first["pid"]))] = [each["id"] for each in second["data"]]  # type: ignore[attr-defined]
            writer.close()
    return found


async def read_json(reader: asyncio.StreamReader) -> dict[str, object]:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    size = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
    answer = json.loads(await reader.readexactly(size))
    assert isinstance(answer, dict)
    return answer


async def test_the_official_sdk_is_served_by_real_workers_with_a_key(tmp_path: Path) -> None:
    layout = prepare_layout(tmp_path)
    async with FakeUpstream() as engine:
        routes = table(model("m", target_of(engine)), keys=(key("k1", name="team a"),), allow_missing_auth=False)
        async with FakeDaemon(layout.daemon_socket, routes), workers(tmp_path, 2) as running:
            url = f"http://127.0.0.1:{running.address[1]}/v1"
            async with AsyncOpenAI(base_url=url, api_key="k1", max_retries=0) as client:
                messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]
                answer = await client.chat.completions.create(model="m", messages=messages)
                stream = await client.chat.completions.create(model="m", messages=messages, stream=True)
                words = [event.choices[0].delta.content async for event in stream]
            assert (answer.choices[0].message.content, len(words)) == ("Paris", 5)
        lines = [line for line in running.log.read_text().splitlines() if "request id=" in line]
    assert len(lines) == 2
    assert all('key="team a"' in line and "status=200" in line and "ended=complete" in line for line in lines)


async def test_all_workers_know_a_change_within_the_bound(tmp_path: Path) -> None:
    layout = prepare_layout(tmp_path)
    took_s, asked_s = [], []
    async with (
        FakeDaemon(layout.daemon_socket, table(model("old", target()))) as daemon,
        workers(tmp_path, 2) as running,
    ):
        await daemon.wait_followers(2)
        for number in range(7):
            daemon.publish(msgspec.structs.replace(table(model(f"new{number}", target())), version=2 + number))
            begun = monotonic()
            async with asyncio.timeout(SOON_S):
                while set(map(tuple, (await models_by_worker(running, 2)).values())) != {(f"new{number}",)}:
                    pass
            took_s.append(monotonic() - begun)
            begun = monotonic()
            await models_by_worker(running, 2)
            asked_s.append(monotonic() - begun)
    # The medians, since the machine that runs tests may stop anybody for longer than the bound.
    assert median(took_s) <= SEEN_BY_ALL_S + 2 * median(asked_s), (took_s, asked_s)


async def test_a_killed_worker_is_replaced_and_knows_its_models_before_it_serves(tmp_path: Path) -> None:
    layout = prepare_layout(tmp_path)
    names = [f"m{number}" for number in range(20)]
    routes = table(*(model(name, target()) for name in names))
    async with FakeDaemon(layout.daemon_socket, routes), workers(tmp_path, 2) as running:
        victim = await running.pid()
        os.kill(victim, signal.SIGKILL)
        await running.wait_children(2, without=victim)
        found = await models_by_worker(running, 2)
    assert victim not in found
    assert all(listed == names for listed in found.values())


async def test_workers_serve_on_while_the_daemon_is_away_and_take_its_word_when_it_is_back(tmp_path: Path) -> None:
    layout = prepare_layout(tmp_path)
    async with FakeUpstream() as engine:
        routes = table(model("m", target_of(engine)))
        async with FakeDaemon(layout.daemon_socket, routes) as daemon, workers(tmp_path, 2) as running:
            await daemon.wait_followers(2)
            await daemon.stop()
            for _ in range(10):
                assert (await raw_request(running.address, CHAT, chat())).status == 200
            daemon.table = msgspec.structs.replace(table(model("other", target())), epoch="e2")
            await daemon.start()
            async with asyncio.timeout(SOON_S):
                while set(map(tuple, (await models_by_worker(running, 2)).values())) != {("other",)}:
                    pass


async def test_workers_that_start_without_a_daemon_serve_the_last_good_table_at_once(tmp_path: Path) -> None:
    layout = prepare_layout(tmp_path)
    async with FakeUpstream() as engine:
        routes = table(model("m", target_of(engine)))
        async with FakeDaemon(layout.daemon_socket, routes), workers(tmp_path, 1):
            await wait_saved(layout, 1)
        begun = monotonic()
        async with workers(tmp_path, 1) as running:
            assert (await raw_request(running.address, CHAT, chat())).status == 200
    assert monotonic() - begun < 10


async def test_a_stop_lets_a_stream_end_and_takes_no_new_request(tmp_path: Path) -> None:
    layout = prepare_layout(tmp_path)
    async with FakeUpstream(Behaviour(pieces=10, pause_s=0.1)) as engine:
        routes = table(model("m", target_of(engine)))
        async with FakeDaemon(layout.daemon_socket, routes), workers(tmp_path, 1) as running:
            reader, writer = await asyncio.open_connection(*running.address)
            writer.write(render_request(CHAT, chat(stream=True)))
            await reader.readuntil(b"w0")
            running.process.send_signal(signal.SIGTERM)
            rest = await reader.read()
            writer.close()
            async with asyncio.timeout(SOON_S):
                assert await running.process.wait() == 0
    assert b"[DONE]" in rest and rest.endswith(b"0\r\n\r\n")


async def test_a_client_that_leaves_ends_the_engines_work_through_real_workers(tmp_path: Path) -> None:
    layout = prepare_layout(tmp_path)
    async with FakeUpstream(Behaviour(head_pause_s=30)) as engine:
        routes = table(model("m", target_of(engine)))
        async with FakeDaemon(layout.daemon_socket, routes), workers(tmp_path, 2) as running:
            _, writer = await asyncio.open_connection(*running.address)
            writer.write(render_request(CHAT, chat()))
            await engine.wait_for(lambda: engine.open == 1)
            writer.close()
            async with asyncio.timeout(1.0 + MOMENT_S):
                await engine.wait_for(lambda: engine.abandoned == 1)
