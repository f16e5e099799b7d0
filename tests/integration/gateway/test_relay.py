"""Requests through the application to engines and back: answers, failures, cancellation, and what crosses."""

import asyncio
import json
from pathlib import Path

import msgspec
import pytest
from openai import AsyncOpenAI

from core.http.asgi import SPLICE_EXTENSION
from tests.fakes.upstream import Behaviour, FakeUpstream
from tests.integration.gateway.harness import CHAT, chat, gateway, raw_request, render_request, target_of
from tests.patience import MOMENT_S, SOON_S
from tests.unit.gateway.tables import key, model, table


@pytest.fixture(params=["fast lane", "resource"])
def lane(request: pytest.FixtureRequest) -> str:
    """Every promise holds on both ways to the relay."""
    return str(request.param)


async def test_the_official_sdk_gets_an_answer_and_a_stream(tmp_path: Path, lane: str) -> None:
    async with (
        FakeUpstream() as engine,
        gateway(tmp_path, lane=lane, table=table(model("m", target_of(engine)))) as gw,
        AsyncOpenAI(base_url=f"{gw.url}/v1", api_key="anything", max_retries=0) as client,
    ):
        answer = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
        assert answer.choices[0].message.content == "Paris"
        assert answer.model == "m"
        stream = await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        words = [event.choices[0].delta.content async for event in stream]
        assert words == ["w0 ", "w1 ", "w2 ", "w3 ", "w4 "]
        assert [each.id async for each in client.models.list()] == ["m"]
        assert (await client.models.retrieve("m")).id == "m"


async def test_credentials_stay_here_and_the_engine_gets_its_own_key(tmp_path: Path, lane: str) -> None:
    key_file = tmp_path / "engine.key"
    key_file.write_text("engine-secret\n")
    async with FakeUpstream() as engine:
        routes = table(model("m", target_of(engine, key_file=str(key_file))), keys=(key("client-secret"),))
        async with gateway(tmp_path, routes, lane=lane) as gw:
            headers = {
                "authorization": "Bearer client-secret",
                "x-api-key": "client-secret",
                "cookie": "c=client-secret",
            }
            answer = await raw_request((gw.host, gw.port), f"{CHAT}?key=client-secret", chat(), headers)
    assert answer.status == 200
    assert engine.seen[0].headers["Authorization"] == "Bearer engine-secret"
    assert "client-secret" not in json.dumps([engine.seen[0].headers, engine.seen[0].path])
    assert "engine-secret" not in str(answer)


async def test_the_body_reaches_the_engine_byte_for_byte(tmp_path: Path, lane: str) -> None:
    odd = b' {"x": 1.50,\t"model" : "m", "unknown":{"deep":[1e5, "\\u00e9"]}, "messages":[] }\n'
    async with FakeUpstream() as engine, gateway(tmp_path, lane=lane, table=table(model("m", target_of(engine)))) as gw:
        await raw_request((gw.host, gw.port), CHAT, odd)
    assert engine.seen[0].body == odd


@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/v1/embeddings"])
async def test_every_inference_path_is_relayed_to_itself(tmp_path: Path, lane: str, path: str) -> None:
    async with FakeUpstream() as engine, gateway(tmp_path, lane=lane, table=table(model("m", target_of(engine)))) as gw:
        answer = await raw_request((gw.host, gw.port), path, chat())
    assert (answer.status, engine.seen[0].path) == (200, path)


async def test_an_answer_names_its_target_and_its_request(tmp_path: Path, lane: str) -> None:
    async with (
        FakeUpstream() as engine,
        gateway(tmp_path, lane=lane, table=table(model("m", target_of(engine, "gpu-0")))) as gw,
    ):
        mine = await raw_request((gw.host, gw.port), CHAT, chat(), {"x-request-id": "my-id-1"})
        made = await raw_request((gw.host, gw.port), CHAT, chat(), {"x-request-id": "not sane"})
        refused = await raw_request((gw.host, gw.port), CHAT, chat("nope"), {"x-request-id": "my-id-2"})
    assert (mine.headers["x-request-id"], mine.headers["x-llmgw-target"]) == ("my-id-1", "gpu-0")
    assert made.headers["x-request-id"] not in ("", "not sane")
    assert refused.headers["x-request-id"] == "my-id-2"


@pytest.mark.parametrize("status", [500, 502, 503, 429])
async def test_a_failing_target_costs_no_request(tmp_path: Path, lane: str, status: int) -> None:
    async with FakeUpstream(Behaviour(status=status)) as bad, FakeUpstream() as good:
        routes = table(model("m", target_of(bad, "bad"), target_of(good, "good")))
        async with gateway(tmp_path, routes, lane=lane) as gw:
            answers = [await raw_request((gw.host, gw.port), CHAT, chat()) for _ in range(20)]
    assert {answer.status for answer in answers} == {200}
    assert {answer.headers["x-llmgw-target"] for answer in answers} == {"good"}


async def test_a_target_that_refuses_connections_costs_no_request_and_is_not_asked_each_time(
    tmp_path: Path, lane: str
) -> None:
    async with FakeUpstream() as gone:
        dead = target_of(gone, "dead")
    async with (
        FakeUpstream() as good,
        gateway(tmp_path, lane=lane, table=table(model("m", dead, target_of(good, "good")))) as gw,
    ):
        answers = [await raw_request((gw.host, gw.port), CHAT, chat(stream=bool(n % 2))) for n in range(20)]
    assert {answer.status for answer in answers} == {200}


@pytest.mark.parametrize(
    ("how", "status", "code"),
    [
        (Behaviour(status=401, body=b"no key engine-secret"), 502, "upstream_unauthorized"),
        (Behaviour(status=407, body=b"no key engine-secret"), 502, "upstream_unauthorized"),
    ],
)
async def test_an_engine_that_rejects_our_key_is_never_the_clients_401(
    tmp_path: Path, lane: str, how: Behaviour, status: int, code: str
) -> None:
    async with (
        FakeUpstream(how) as engine,
        gateway(tmp_path, lane=lane, table=table(model("m", target_of(engine)))) as gw,
    ):
        answer = await raw_request((gw.host, gw.port), CHAT, chat())
    assert (answer.status, answer.error["code"]) == (status, code)
    assert b"engine-secret" not in answer.body
    assert len(engine.seen) == 1, "a request that failed is answered, not asked again"


async def test_the_only_target_being_unreachable_is_a_502_that_names_no_host(tmp_path: Path, lane: str) -> None:
    async with FakeUpstream() as gone:
        dead = target_of(gone)
    async with gateway(tmp_path, lane=lane, table=table(model("m", dead))) as gw:
        answer = await raw_request((gw.host, gw.port), CHAT, chat())
    assert (answer.status, answer.error["code"], answer.error["model"]) == (502, "upstream_unreachable", "m")
    assert b"127.0.0.1" not in answer.body and str(dead.port).encode() not in answer.body


@pytest.mark.parametrize("status", [400, 404, 422])
async def test_an_engines_own_4xx_is_the_clients_answer(tmp_path: Path, lane: str, status: int) -> None:
    body = b'{"error":{"message":"too long"}}'
    async with FakeUpstream(Behaviour(status=status, body=body)) as engine, FakeUpstream() as other:
        routes = table(model("m", target_of(engine, "a"), target_of(other, "b")))
        async with gateway(tmp_path, routes, lane=lane) as gw:
            answers = [await raw_request((gw.host, gw.port), CHAT, chat()) for _ in range(4)]
    assert [answer.status for answer in answers] == [status, 200, status, 200]
    assert answers[0].body == body


async def test_a_stream_that_breaks_ends_with_an_error_event_and_never_with_done(tmp_path: Path, lane: str) -> None:
    async with (
        FakeUpstream(Behaviour(break_after=2)) as engine,
        gateway(tmp_path, lane=lane, table=table(model("m", target_of(engine)))) as gw,
    ):
        reader, writer = await asyncio.open_connection(gw.host, gw.port)
        writer.write(render_request(CHAT, chat(stream=True)))
        data = await reader.read()
        writer.close()
    assert b"upstream_broken" in data
    assert b"[DONE]" not in data
    assert not data.endswith(b"0\r\n\r\n"), "the end must be unclean"


@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/v1/embeddings"])
@pytest.mark.parametrize(
    ("how", "stream"),
    [
        (Behaviour(head_pause_s=30), False),
        (Behaviour(head_pause_s=30), True),
        (Behaviour(pause_s=30), True),
    ],
    ids=["plain", "before the first byte", "after the first byte"],
)
async def test_a_client_that_leaves_ends_the_engines_work(
    tmp_path: Path, lane: str, path: str, how: Behaviour, stream: bool
) -> None:
    async with (
        FakeUpstream(how) as engine,
        gateway(tmp_path, lane=lane, table=table(model("m", target_of(engine)))) as gw,
    ):
        reader, writer = await asyncio.open_connection(gw.host, gw.port)
        writer.write(render_request(path, chat(stream=stream)))
        if stream and not how.head_pause_s:
            await reader.readuntil(b"w0")
        async with asyncio.timeout(SOON_S):
            await engine.wait_for(lambda: engine.open == 1)
        writer.close()
        async with asyncio.timeout(1.0 + MOMENT_S):
            await engine.wait_for(lambda: engine.abandoned == 1 and engine.open == 0)


async def test_a_change_of_the_table_counts_at_once_and_streams_go_on(tmp_path: Path, lane: str) -> None:
    async with FakeUpstream(Behaviour(pieces=3, pause_s=0.5)) as old, FakeUpstream() as new:
        first = table(model("m", target_of(old, "old")))
        second = msgspec.structs.replace(table(model("m", target_of(new, "new"))), version=2)
        async with gateway(tmp_path, first, lane=lane) as gw:
            reader, writer = await asyncio.open_connection(gw.host, gw.port)
            writer.write(render_request(CHAT, chat(stream=True)))
            await reader.readuntil(b"w0")
            gw.daemon.publish(second)
            async with asyncio.timeout(SOON_S):
                while (await raw_request((gw.host, gw.port), CHAT, chat())).headers["x-llmgw-target"] != "new":
                    pass
            old.behaviour.pause_s = 0.0
            rest = await reader.readuntil(b"[DONE]")
            writer.close()
    assert b"w2" in rest


def test_the_relay_extension_has_the_name_that_the_server_gives_it() -> None:
    assert SPLICE_EXTENSION == "llmgw.splice"


async def ask_again(
    connection: tuple[asyncio.StreamReader, asyncio.StreamWriter], headers: dict[str, str], body: bytes
) -> int:
    """One more request on a connection that is kept; its status."""
    reader, writer = connection
    writer.write(render_request(CHAT, body, headers))
    head = await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]))
    return int(head.split()[1])


async def test_a_key_that_is_taken_back_opens_nothing_on_a_connection_that_was_kept(tmp_path: Path, lane: str) -> None:
    headers = {"authorization": "Bearer one"}
    async with FakeUpstream() as engine:
        models = model("m", target_of(engine))
        first = table(models, keys=(key("one"),), allow_missing_auth=False)
        second = msgspec.structs.replace(table(models, keys=(key("two"),), allow_missing_auth=False), version=2)
        async with gateway(tmp_path, first, lane=lane) as gw:
            kept = await asyncio.open_connection(gw.host, gw.port)
            before = [await ask_again(kept, headers, chat(n=n)) for n in range(4)]
            gw.daemon.publish(second)
            async with asyncio.timeout(SOON_S):
                while (await ask_again(kept, headers, chat())) == 200:
                    pass
            after = [await ask_again(kept, headers, chat()) for _ in range(3)]
            other = await ask_again(kept, {"authorization": "Bearer two"}, chat())
            mixed = [await ask_again(kept, {"authorization": f"Bearer {k}"}, chat()) for k in ("two", "one", "two")]
            kept[1].close()
    assert (before, after, other, mixed) == ([200] * 4, [401] * 3, 200, [200, 401, 200])


async def test_one_connection_may_ask_for_many_models_and_paths(tmp_path: Path, lane: str) -> None:
    async with FakeUpstream() as one, FakeUpstream() as two:
        routes = table(model("a", target_of(one, "a")), model("b", target_of(two, "b"), aliases=("c",)))
        async with gateway(tmp_path, routes, lane=lane) as gw:
            kept = await asyncio.open_connection(gw.host, gw.port)
            statuses = [await ask_again(kept, {}, chat(name)) for name in ("a", "b", "a", "c", "x", "a", "b")]
            kept[1].close()
    assert statuses == [200, 200, 200, 200, 404, 200, 200]
    assert [json.loads(seen.body)["model"] for seen in one.seen + two.seen] == ["a", "a", "a", "b", "b", "b"]
