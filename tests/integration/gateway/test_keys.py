"""Keys and their limits through real workers: exact over all of them, live, and never left taken."""

import asyncio
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from statistics import median

import msgspec
import pytest

from core.api import ApiKey, RouteTable
from tests.fakes.daemon_socket import FakeDaemon
from tests.fakes.upstream import Behaviour, FakeUpstream, completion
from tests.integration.gateway.harness import (
    CHAT,
    Answer,
    chat,
    prepare_layout,
    raw_request,
    render_request,
    target_of,
    wait_saved,
)
from tests.integration.gateway.workers import Workers, workers
from tests.patience import SOON_S
from tests.unit.gateway.tables import model, table, unready

SECRET = "sk-llmgw-the-secret-of-team-a"


def limited(secret: str = SECRET, name: str = "team-a", **rules: object) -> ApiKey:
    digest = sha256(secret.encode()).hexdigest()
    return ApiKey(sha256=digest, name=name, made=True, **rules)  # type: ignore[arg-type]


async def ask(running: Workers, secret: str = SECRET, body: bytes = b"", path: str = CHAT) -> Answer:
    return await raw_request(running.address, path, body or chat(), {"authorization": f"Bearer {secret}"})


@asynccontextmanager
async def four_workers(
    state: Path, engine: FakeUpstream, *keys: ApiKey
) -> AsyncIterator[tuple[Workers, FakeDaemon, RouteTable]]:
    """Four workers, each with a connection to the daemon, and a model `m` of many slots."""
    layout = prepare_layout(state)
    routes = table(model("m", target_of(engine)), model("other", target_of(engine, "t2")), keys=keys)
    routes = msgspec.structs.replace(
        routes, security=msgspec.structs.replace(routes.security, allow_missing_auth=False)
    )
    async with FakeDaemon(layout.daemon_socket, routes) as daemon, workers(state, 4) as running:
        await daemon.wait_followers(4)
        yield running, daemon, routes


async def until_passes(running: Workers, body: bytes = b"") -> None:
    """Return once a request of the key is let in."""
    async with asyncio.timeout(SOON_S):
        while (await ask(running, body=body)).status == 429:
            pass


async def test_a_hundred_requests_a_minute_are_a_hundred_over_four_workers(tmp_path: Path) -> None:
    async with FakeUpstream() as engine, four_workers(tmp_path, engine, limited(requests_per_minute=100)) as world:
        running, *_ = world
        began_s = time.monotonic()

        async def client() -> list[Answer]:
            return [await ask(running) for _ in range(25)]

        answers = [each for one in await asyncio.gather(*(client() for _ in range(12))) for each in one]
        assert time.monotonic() - began_s < 60, "too slow a machine for this test"
        counts = Counter(each.status for each in answers)
        assert set(counts) == {200, 429} and 98 <= counts[200] <= 100, counts
        refused = next(each for each in answers if each.status == 429)
        assert refused.error["code"] == "key_requests_exceeded"
        assert 0 < int(refused.headers["retry-after"]) <= 61
        assert (refused.headers["x-ratelimit-limit-requests"], refused.headers["x-ratelimit-remaining-requests"]) == (
            "100",
            "0",
        )
        remaining = {int(each.headers["x-ratelimit-remaining-requests"]) for each in answers if each.status == 200}
        assert max(remaining) == 99 and min(remaining) <= 2
        # All four had a part in it.
        assert len(engine.seen) == counts[200]


async def test_a_worker_that_is_killed_forgets_nothing_of_the_minute(tmp_path: Path) -> None:
    async with FakeUpstream() as engine, four_workers(tmp_path, engine, limited(requests_per_minute=40)) as world:
        running, *_ = world
        statuses = [(await ask(running)).status for _ in range(30)]
        for victim in running.children():
            os.kill(victim, signal.SIGKILL)
            await running.wait_children(4, without=victim)
        await running.wait_ready()
        statuses += [(await ask(running)).status for _ in range(30)]
        assert Counter(statuses)[200] == 40


@pytest.mark.parametrize("path", [CHAT, "/v1/messages", "/v1/responses"])
async def test_tokens_that_the_engine_counted_are_charged_over_all_workers(tmp_path: Path, path: str) -> None:
    answer = completion("m") | {"usage": {"prompt_tokens": 60, "completion_tokens": 40, "total_tokens": 100}}
    behaviour = Behaviour(body=json.dumps(answer).encode())
    async with (
        FakeUpstream(behaviour) as engine,
        four_workers(tmp_path, engine, limited(tokens_per_minute=950)) as (running, *_),
    ):
        body = chat(max_tokens=5, input="hi")
        answers = [await ask(running, body=body, path=path) for _ in range(14)]
        assert Counter(each.status for each in answers) == {200: 10, 429: 4}
        refused, last = answers[-1], answers[9]
        assert 50 <= int(refused.headers["retry-after"]) <= 61
        if path == "/v1/messages":
            assert json.loads(refused.body)["error"]["type"] == "rate_limit_error"
            assert last.headers["anthropic-ratelimit-tokens-remaining"] == "50"
            assert refused.headers["anthropic-ratelimit-tokens-reset"].endswith("Z")
        else:
            assert refused.error["code"] == "key_tokens_exceeded"
            assert (last.headers["x-ratelimit-limit-tokens"], last.headers["x-ratelimit-remaining-tokens"]) == (
                "950",
                "50",
            )


async def test_what_a_client_that_leaves_has_used_is_charged_too(tmp_path: Path) -> None:
    behaviour = Behaviour(pieces=200, pause_s=0.002)
    async with (
        FakeUpstream(behaviour) as engine,
        four_workers(tmp_path, engine, limited(tokens_per_minute=40)) as (running, *_),
    ):
        async with asyncio.timeout(SOON_S):
            for _ in range(20):
                reader, writer = await asyncio.open_connection(*running.address)
                writer.write(render_request(CHAT, chat(stream=True), {"authorization": f"Bearer {SECRET}"}))
                if b" 429 " in await reader.readline():
                    writer.transport.abort()
                    break
                await reader.readuntil(b"w30")
                before = engine.abandoned
                writer.transport.abort()
                await engine.wait_for(lambda: engine.abandoned > before)  # noqa: B023 - waited for at once
        assert 1 <= len(engine.seen) < 10
        assert (await ask(running)).error["code"] == "key_tokens_exceeded"


async def test_so_many_requests_run_at_once_and_no_more(tmp_path: Path) -> None:
    async with (
        FakeUpstream(Behaviour(head_pause_s=30)) as engine,
        four_workers(tmp_path, engine, limited(concurrency=5)) as (running, *_),
    ):
        waiting = [asyncio.create_task(ask(running)) for _ in range(40)]
        async with asyncio.timeout(SOON_S):
            await engine.wait_for(lambda: engine.open == 5)
            while sum(task.done() for task in waiting) < 35:  # noqa: ASYNC110 - forty tasks, no event
                await asyncio.sleep(0.01)
        assert engine.open == 5 == len(engine.seen)
        engine.release()
        counts = Counter([(await task).status for task in waiting])
        assert counts == {200: 5, 429: 35}
        refused = next(task.result() for task in waiting if task.result().status == 429)
        assert (refused.error["code"], refused.headers["retry-after"]) == ("key_concurrency_exceeded", "1")


async def leave_before_the_head(running: Workers, engine: FakeUpstream, path: str, *, stream: bool) -> None:
    before = engine.abandoned
    _, writer = await asyncio.open_connection(*running.address)
    writer.write(render_request(path, chat(stream=stream, max_tokens=9, input="hi"), {"x-api-key": SECRET}))
    await engine.wait_for(lambda: engine.open == 1)
    writer.transport.abort()
    await engine.wait_for(lambda: engine.abandoned > before)


async def leave_in_the_stream(running: Workers, engine: FakeUpstream, path: str) -> None:
    before = engine.abandoned
    reader, writer = await asyncio.open_connection(*running.address)
    writer.write(render_request(path, chat(stream=True, max_tokens=9, input="hi"), {"x-api-key": SECRET}))
    await reader.readuntil(b"w0")
    writer.close()
    await engine.wait_for(lambda: engine.abandoned > before)


@pytest.mark.parametrize("path", [CHAT, "/v1/messages", "/v1/responses"])
async def test_the_place_of_a_client_that_leaves_is_free_again(tmp_path: Path, path: str) -> None:
    behaviour = Behaviour(head_pause_s=30)
    async with (
        FakeUpstream(behaviour) as engine,
        four_workers(tmp_path, engine, limited(concurrency=1)) as (running, *_),
    ):
        for stream in (False, True) * 3:
            async with asyncio.timeout(SOON_S):
                await leave_before_the_head(running, engine, path, stream=stream)
            behaviour.head_pause_s = 0
            await until_passes(running)
            behaviour.head_pause_s = 30
        behaviour.head_pause_s, behaviour.pause_s = 0, 30
        for _ in range(4):
            async with asyncio.timeout(SOON_S):
                await leave_in_the_stream(running, engine, path)
            behaviour.pause_s = 0
            await until_passes(running)
            behaviour.pause_s = 30


async def test_the_place_of_a_client_that_leaves_in_the_queue_is_free_again(tmp_path: Path) -> None:
    layout = prepare_layout(tmp_path)
    keys = (limited(concurrency=1), limited("sk-llmgw-other", "other"))
    async with FakeUpstream(Behaviour(head_pause_s=30)) as engine:
        busy = model("m", target_of(engine, max_concurrency=1))
        loading = model("l", unready("starting", "t3", request_startup_wait_ms=60_000))
        free = model("f", target_of(engine, "t4"))
        routes = table(busy, loading, free, keys=keys, allow_missing_auth=False)
        async with FakeDaemon(layout.daemon_socket, routes) as daemon, workers(tmp_path, 2) as running:
            await daemon.wait_followers(2)
            holding = asyncio.create_task(ask(running, "sk-llmgw-other"))
            async with asyncio.timeout(SOON_S):
                await engine.wait_for(lambda: engine.open == 1)
                for waits_for in ("m", "l") * 3:
                    _, writer = await asyncio.open_connection(*running.address)
                    body = chat(waits_for)
                    writer.write(render_request(CHAT, body, {"authorization": f"Bearer {SECRET}"}))
                    while (await ask(running, body=chat("nope"))).status != 404:
                        pass
                    while (await ask(running, body=chat("f", stream=True))).status != 429:
                        pass
                    writer.transport.abort()
                    engine.behaviour.head_pause_s = 0
                    await until_passes(running, chat("f"))
                    engine.behaviour.head_pause_s = 30
            engine.release()
            assert (await holding).status == 200


@pytest.mark.parametrize("how", ["refused", "unreachable", "broken", "500", "400", "odd body"])
async def test_a_request_that_fails_leaves_its_place(tmp_path: Path, how: str) -> None:
    layout = prepare_layout(tmp_path)
    async with FakeUpstream() as engine:
        bad = target_of(engine, "bad")
        if how == "unreachable":
            bad = msgspec.structs.replace(bad, port=1)
        routes = table(
            model("bad", bad), model("m", target_of(engine)), keys=(limited(concurrency=1),), allow_missing_auth=False
        )
        async with FakeDaemon(layout.daemon_socket, routes), workers(tmp_path, 2) as running:
            for path in (CHAT, "/v1/messages", "/v1/responses"):
                for stream in (False, True):
                    if how.isdigit():
                        engine.behaviour = Behaviour(status=int(how))
                    elif how == "broken":
                        engine.behaviour = Behaviour(break_after=1)
                    elif how == "odd body":
                        engine.behaviour = Behaviour(body=b"{")
                    asked = "nope" if how == "refused" else "bad"
                    body = chat(asked, stream=stream, max_tokens=5, input="hi")
                    await raw_request(running.address, path, body, {"authorization": f"Bearer {SECRET}"})
                    engine.behaviour = Behaviour()
                    # At once: nobody else has the key, and the answer was whole.
                    await until_passes(running)


async def test_a_worker_that_is_killed_holds_no_place(tmp_path: Path) -> None:
    behaviour = Behaviour(head_pause_s=30)
    async with (
        FakeUpstream(behaviour) as engine,
        four_workers(tmp_path, engine, limited(concurrency=2)) as (running, *_),
    ):
        held = [asyncio.create_task(ask(running)) for _ in range(2)]
        async with asyncio.timeout(SOON_S):
            await engine.wait_for(lambda: engine.open == 2)
        assert (await ask(running)).status == 429
        for victim in running.children():
            os.kill(victim, signal.SIGKILL)
        await asyncio.gather(*held, return_exceptions=True)
        behaviour.head_pause_s = 0
        await running.wait_ready()
        await until_passes(running)
        behaviour.head_pause_s = 30
        again = [asyncio.create_task(ask(running)) for _ in range(2)]
        async with asyncio.timeout(SOON_S):
            await engine.wait_for(lambda: engine.open == 2)
        engine.release()
        assert [(await task).status for task in again] == [200, 200]


async def test_a_storm_of_clients_that_come_and_go_leaves_nothing_taken(tmp_path: Path) -> None:
    async with (
        FakeUpstream(Behaviour(pieces=6, pause_s=0.01)) as engine,
        four_workers(tmp_path, engine, limited(concurrency=8)) as (running, *_),
    ):
        chance = random.Random(5)

        async def client() -> None:
            for _ in range(12):
                reader, writer = await asyncio.open_connection(*running.address)
                path = chance.choice([CHAT, "/v1/messages", "/v1/responses"])
                body = chat(chance.choice(["m", "other"]), stream=chance.random() < 0.7, max_tokens=5, input="hi")
                writer.write(render_request(path, body, {"authorization": f"Bearer {SECRET}"}))
                try:
                    async with asyncio.timeout(chance.choice([0.001, 0.01, 0.03, 1.0])):
                        await reader.read(chance.choice([1, 400, 100_000]))
                except TimeoutError:
                    pass
                writer.transport.abort()

        await asyncio.gather(*(client() for _ in range(20)))
        engine.behaviour = Behaviour(head_pause_s=30)
        async with asyncio.timeout(SOON_S):
            held: list[asyncio.Task[Answer]] = []
            while engine.open < 8 or sum(not task.done() for task in held) != 8:
                held = [task for task in held if not task.done()]
                held += [asyncio.create_task(ask(running)) for _ in range(8 - len(held))]
                await asyncio.wait(held, timeout=0.2, return_when=asyncio.FIRST_COMPLETED)
        assert (await ask(running)).status == 429
        engine.release()
        assert {(await task).status for task in held} == {200}


async def test_a_revoked_key_is_refused_by_all_workers_within_the_bound(tmp_path: Path) -> None:
    kept = limited("sk-llmgw-kept", "kept")
    async with FakeUpstream() as engine, four_workers(tmp_path, engine, limited(), kept) as world:
        running, daemon, routes = world
        took_s, asked_s = [], []
        for number in range(5):
            now = msgspec.structs.replace(routes, version=10 + 2 * number, keys=[limited(), kept])
            daemon.publish(now)
            await until(running, 200)
            began_s = time.monotonic()
            await until(running, 200)
            asked_s.append(time.monotonic() - began_s)
            daemon.publish(msgspec.structs.replace(now, version=11 + 2 * number, keys=[kept]))
            began_s = time.monotonic()
            await until(running, 401)
            took_s.append(time.monotonic() - began_s)
        # Most of it are the questions themselves: of two rounds the first may have begun too early.
        assert median(took_s) < 0.1 + 2 * median(asked_s), (took_s, asked_s)
        assert (await ask(running, "sk-llmgw-kept")).status == 200
        refused, unknown = await ask(running), await ask(running, "sk-llmgw-never")
        assert refused.body == unknown.body and refused.status == 401


async def until(running: Workers, status: int) -> None:
    """Return once 16 connections in a row, which come to all workers, have this status."""
    async with asyncio.timeout(SOON_S):
        while {(await ask(running)).status for _ in range(16)} != {status}:
            pass


async def test_a_key_expires_by_itself_on_a_connection_that_is_kept(tmp_path: Path) -> None:
    async with FakeUpstream() as engine, four_workers(tmp_path, engine, limited()) as (running, daemon, routes):
        reader, writer = await asyncio.open_connection(*running.address)
        request = render_request(CHAT, chat(), {"authorization": f"Bearer {SECRET}"})

        async def status() -> int:
            writer.write(request)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            await reader.readexactly(int(head.partition(b"content-length:")[2].partition(b"\r\n")[0]))
            return int(head.split()[1])

        assert [await status(), await status()] == [200, 200]
        expires_s = time.time() + 2.0
        daemon.publish(msgspec.structs.replace(routes, version=2, keys=[limited(expires_s=expires_s)]))
        async with asyncio.timeout(SOON_S):
            served_s = asked_s = time.time()
            while (last := await status()) == 200:
                served_s, asked_s = asked_s, time.time()
        ended_s = time.time()
        writer.close()
        assert last == 401
        assert served_s < expires_s <= ended_s
        assert (await ask(running)).body == (await ask(running, "sk-llmgw-never")).body


async def test_a_key_for_some_models_sees_and_uses_those_alone(tmp_path: Path) -> None:
    async with FakeUpstream() as engine, four_workers(tmp_path, engine, limited(models=["m*"])) as (running, *_):
        assert (await ask(running)).status == 200
        there, nowhere = await ask(running, body=chat("other")), await ask(running, body=chat("zzzzz"))
        assert (there.status, nowhere.status) == (403, 403)
        assert there.body.replace(b"other", b"") == nowhere.body.replace(b"zzzzz", b"")
        assert there.error["code"] == "model_not_allowed"
        anthropic = await ask(running, body=chat("other", max_tokens=5), path="/v1/messages")
        assert (anthropic.status, json.loads(anthropic.body)["error"]["type"]) == (403, "permission_error")
        listed = await raw_request(running.address, "/v1/models", headers={"x-api-key": SECRET}, method="GET")
        assert [each["id"] for each in json.loads(listed.body)["data"]] == ["m"]
        hidden = await raw_request(running.address, "/v1/models/other", headers={"x-api-key": SECRET}, method="GET")
        assert hidden.status == 403


async def test_only_a_key_for_administration_opens_what_is_the_administrators(tmp_path: Path) -> None:
    admin = limited("sk-llmgw-root", "root", scope="admin")
    async with FakeUpstream() as engine, four_workers(tmp_path, engine, limited(), admin) as (running, *_):

        async def status(secret: str) -> int:
            headers = {"authorization": f"Bearer {secret}"}
            return (await raw_request(running.address, "/gateway/status", headers=headers, method="GET")).status

        assert [await status(SECRET), await status("sk-llmgw-root"), await status("x")] == [401, 200, 401]
        assert (await ask(running, "sk-llmgw-root")).status == 200


async def test_keys_hold_while_the_daemon_is_away(tmp_path: Path) -> None:
    layout = prepare_layout(tmp_path)
    key = limited(requests_per_minute=3, models=["m"])
    async with FakeUpstream() as engine:
        routes = table(model("m", target_of(engine)), keys=(key,), allow_missing_auth=False)
        async with FakeDaemon(layout.daemon_socket, routes), workers(tmp_path, 1):
            await wait_saved(layout, 1)
        async with workers(tmp_path, 2) as running:
            counts = Counter([(await ask(running)).status for _ in range(10)])
            assert counts == {200: 3, 429: 7}
            assert (await ask(running, "sk-llmgw-other")).status == 401


async def test_no_key_and_no_hash_is_told_anywhere_but_where_it_must_be(tmp_path: Path) -> None:
    key, config_key = (
        limited(requests_per_minute=2, models=["m"]),
        limited("sk-config-secret", "apiKeys[0]", concurrency=1),
    )
    async with (
        FakeUpstream(Behaviour(break_after=1)) as engine,
        four_workers(tmp_path, engine, key, config_key) as world,
    ):
        running, *_ = world
        told = [
            await ask(running, secret, body)
            for secret in (SECRET, "sk-config-secret", SECRET + "x")
            for body in (chat(), chat("other"), chat("nope"), b"{", chat(stream=True), chat(stream=True))
        ]
        for victim in running.children():
            os.kill(victim, signal.SIGTERM)
        told += [await ask(running, path=path) for path in ("/v1/messages", "/v1/responses", "/gateway/status", "/")]
        metrics = await raw_request(running.address, "/metrics", method="GET", headers={"x-api-key": SECRET})
    log = running.log.read_text()
    assert "key=team-a" in log and "key=apiKeys[0]" in log and "code=key_requests_exceeded" in log
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    hashes = [each.sha256.encode() for each in (key, config_key)]
    for secret in (SECRET.encode(), b"sk-config-secret"):
        assert not [path for path, data in files.items() if secret in data]
        assert not [each for each in (*told, metrics) if secret in each.body or secret.decode() in str(each.headers)]
    for digest in hashes:
        assert [path.name for path, data in files.items() if digest in data] == ["routes.json"]
        assert not [path for path, data in files.items() if digest[:8] in data and path.name != "routes.json"]
        assert not [each for each in (*told, metrics) if digest[:8] in each.body]
    (table_file,) = (path for path in files if path.name == "routes.json")
    assert table_file.stat().st_mode & 0o777 == 0o600
