"""vLLM itself, on the processor: the adapter's command, the model's one sentence, keys, LoRA, metrics, leaving clients.

One engine for all tests that leave it as it was; a start takes half a minute. `LLMGW_TEST_STATE` keeps the build.
"""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.process import run_process
from engines.adapter import Build, EngineSpec, NodeFacts, Progress
from engines.check import check_help, help_command
from engines.registry import get_adapter
from engines.trial import try_engine
from tests.engines.running import KEY, EngineClient, ServedEngine, served
from tests.engines.tiny_folder import LORA_SENTENCE
from tests.engines.tiny_model import SENTENCE

pytestmark = pytest.mark.engine

CHAT = "/v1/chat/completions"
ADAPTER = get_adapter("vllm")
OPTIONS: dict[str, str | int | float | bool] = {
    "dtype": "float32", "eager": True, "blockSize": 32, "kvCacheGib": 1, "threads": 2,
}  # fmt: skip
_START_S = 300.0


def a_spec(weights: Path, **options: str | int | float | bool) -> EngineSpec:
    return EngineSpec(
        "r", "vllm", ("one", "two"), 1, weights=weights, context_length=512, max_concurrency=2,
        options={**OPTIONS, **options},
    )  # fmt: skip


@pytest.fixture(scope="module")
def engine(
    vllm: Build, tiny_folder: Path, tiny_lora: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServedEngine]:
    spec = a_spec(tiny_folder, lora=f"changed={tiny_lora}", maxLoras=1, maxLoraRank=8)
    with served(spec, tmp_path_factory.mktemp("vllm"), vllm, within_s=_START_S) as started:
        yield started


def a_request(model: str = "one", **more: object) -> dict[str, object]:
    return {"model": model, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 64, **more}


async def said(client: EngineClient, model: str) -> str:
    reply = await client.ask(CHAT, a_request(model))
    assert reply.status == 200, reply.body
    return str(json.loads(reply.body)["choices"][0]["message"]["content"])


async def progress_of(client: EngineClient) -> Progress:
    return ADAPTER.read_progress((await client.ask("/metrics")).body.decode())


async def test_it_says_under_each_name_what_llamacpp_says(engine: ServedEngine) -> None:
    async with engine.asked() as client:
        assert [await said(client, name) for name in ("one", "two")] == [SENTENCE, SENTENCE]


async def test_a_stream_says_the_same(engine: ServedEngine) -> None:
    async with engine.asked() as client:
        reply = await client.ask(CHAT, a_request(stream=True))
    events = [line.removeprefix("data: ") for line in reply.body.decode().split("\n\n") if line]
    pieces = [json.loads(event)["choices"][0]["delta"].get("content") or "" for event in events[:-1]]

    assert "".join(pieces) == SENTENCE
    assert len(pieces) > 5
    assert events[-1] == "[DONE]"


async def test_an_adapter_changes_the_answer_under_its_own_name_only(engine: ServedEngine) -> None:
    async with engine.asked() as client:
        assert await said(client, "changed") == LORA_SENTENCE
        assert await said(client, "one") == SENTENCE


@pytest.mark.parametrize("path", sorted(route for route in ADAPTER.routes if route.startswith("/v1")))
async def test_a_wrong_key_gets_no_answer_on_any_route_that_the_gateway_asks(engine: ServedEngine, path: str) -> None:
    async with engine.asked() as client:
        assert (await client.ask(path, a_request(), key="wrong")).status == 401


async def test_the_key_is_where_no_other_user_can_read_it(engine: ServedEngine) -> None:
    listed = await run_process(["ps", "-A", "-ww", "-o", "args"], timeout_s=20.0)

    assert KEY not in listed.stdout.decode()
    assert KEY not in engine.log.read_text()


async def test_what_is_counted_moves_with_each_answer(engine: ServedEngine) -> None:
    async with engine.asked() as client:
        before = await progress_of(client)
        await said(client, "one")
        after = await progress_of(client)

    assert None not in (before.running, before.waiting, before.tokens_total, after.tokens_total)
    assert (after.tokens_total or 0) > (before.tokens_total or 0)


async def test_a_client_that_leaves_stops_the_computing(engine: ServedEngine) -> None:
    async with engine.asked() as client:
        reader, writer = await client.begin(CHAT, a_request(stream=True, max_tokens=400, ignore_eos=True))
        await reader.readuntil(b"data:")
        writer.close()
        async with asyncio.timeout(30):
            while (await progress_of(client)).running != 0:  # noqa: ASYNC110 - an engine is asked, it does not tell
                await asyncio.sleep(0.1)
        counted = (await progress_of(client)).tokens_total
        assert counted == (await progress_of(client)).tokens_total


async def test_it_has_every_flag_that_the_adapter_may_use(vllm: Build) -> None:
    argv, environment = help_command(ADAPTER, vllm)
    done = await run_process(argv, timeout_s=180.0, env=environment | {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"})

    findings = check_help(ADAPTER, done.stdout.decode())

    assert [finding.status for finding in findings] == ["ok"], findings


async def test_engine_check_finds_all_of_its_promises_kept(vllm: Build, tiny_folder: Path) -> None:
    findings = await try_engine(ADAPTER, a_spec(tiny_folder), vllm, NodeFacts(2, 8192), deadline_s=_START_S)

    assert {one.check: one.status for one in findings} == dict.fromkeys(
        ["start", "key", "answer", "metrics", "abort"], "ok"
    ), findings
