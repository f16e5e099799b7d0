"""vLLM itself, on the processor: the adapter's command, the model's one sentence, keys, LoRA, metrics, leaving clients.

One engine for all tests that leave it as it was; a start takes half a minute. `LLMGW_TEST_STATE` names a folder that
keeps the build between clones.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.adapter import Build, EngineSpec, NodeFacts
from engines.registry import get_adapter
from engines.trial import try_engine
from tests.engines.promises import (
    a_request,
    blocks_of,
    check_abort,
    check_counts_move,
    check_flags,
    check_key_is_hidden,
    check_kv_events,
    check_stream,
    said,
)
from tests.engines.running import ServedEngine, served
from tests.engines.tiny_folder import LORA_SENTENCE
from tests.engines.tiny_model import SENTENCE

pytestmark = pytest.mark.engine

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
    spec = a_spec(tiny_folder, lora=f"changed={tiny_lora}", maxLoras=1, maxLoraRank=8, kvEvents=True)
    with served(spec, tmp_path_factory.mktemp("vllm"), vllm, within_s=_START_S) as started:
        yield started


async def test_it_says_under_each_name_what_llamacpp_says(engine: ServedEngine) -> None:
    async with engine.asked() as client:
        assert [await said(client, name) for name in ("one", "two")] == [SENTENCE, SENTENCE]


async def test_a_stream_says_the_same(engine: ServedEngine) -> None:
    await check_stream(engine)


async def test_an_adapter_changes_the_answer_under_its_own_name_only(engine: ServedEngine) -> None:
    async with engine.asked() as client:
        assert await said(client, "changed") == LORA_SENTENCE
        assert await said(client, "one") == SENTENCE


@pytest.mark.parametrize("path", sorted(route for route in ADAPTER.routes if route.startswith("/v1")))
async def test_a_wrong_key_gets_no_answer_on_any_route_that_the_gateway_asks(engine: ServedEngine, path: str) -> None:
    async with engine.asked() as client:
        assert (await client.ask(path, a_request(), key="wrong")).status == 401


async def test_the_key_is_where_no_other_user_can_read_it(engine: ServedEngine) -> None:
    await check_key_is_hidden(engine)


async def test_what_is_counted_moves_with_each_answer(engine: ServedEngine) -> None:
    await check_counts_move(engine)


async def test_a_client_that_leaves_stops_the_computing(engine: ServedEngine) -> None:
    await check_abort(engine)


async def test_it_tells_what_its_cache_holds_to_who_listens_and_to_who_comes_later(
    engine: ServedEngine, vllm: Build
) -> None:
    await check_kv_events(engine, vllm)


def test_it_has_every_flag_that_the_adapter_may_use(vllm: Build, tmp_path: Path) -> None:
    check_flags(ADAPTER, vllm, tmp_path)


# A start under load takes longer than a test's event loop may live, so this one brings its own.
def test_engine_check_finds_all_of_its_promises_kept(vllm: Build, tiny_folder: Path) -> None:
    findings = asyncio.run(try_engine(ADAPTER, a_spec(tiny_folder), vllm, NodeFacts(2, 8192), deadline_s=_START_S))

    assert {one.check: one.status for one in findings} == dict.fromkeys(
        ["start", "key", "answer", "metrics", "abort"], "ok"
    ), findings


def test_a_prompt_has_the_same_blocks_in_the_next_life(
    engine: ServedEngine, vllm: Build, tiny_folder: Path, tmp_path: Path
) -> None:
    before = asyncio.run(blocks_of(engine, vllm))

    with served(a_spec(tiny_folder, kvEvents=True), tmp_path, vllm, within_s=_START_S) as another:
        after = asyncio.run(blocks_of(another, vllm))

    assert after.items() <= before.items()
