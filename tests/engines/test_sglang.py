"""SGLang itself, on the processor (`sglang_cpu` says how): the adapter's command, and what the adapter promises of it.

LoRA is not tried: SGLang loads adapters through memory that only a card pins.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.adapter import Build, EngineSpec
from engines.registry import get_adapter
from tests.engines.promises import (
    a_request,
    check_abort,
    check_counts_move,
    check_flags,
    check_key_is_hidden,
    check_kv_events,
    check_stream,
    said,
)
from tests.engines.running import ServedEngine, served
from tests.engines.tiny_model import SENTENCE

pytestmark = pytest.mark.engine

ADAPTER = get_adapter("sglang")
_START_S = 300.0
# What a machine with a card needs none of: compiled grammars and graphs.
_ARGS = (
    *("--grammar-backend", "none"),
    *("--cuda-graph-backend-decode", "disabled", "--cuda-graph-backend-prefill", "disabled"),
)


@pytest.fixture(scope="module")
def engine(sglang: Build, tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedEngine]:
    spec = EngineSpec(
        "r", "sglang", ("one",), 1, weights=tiny_folder, context_length=512, max_concurrency=2, args=_ARGS,
        options={"dtype": "float32", "memoryFraction": 0.05, "maxTotalTokens": 4096, "threads": 2,
                 "kvEvents": True, "pageSize": 16},
    )  # fmt: skip
    with served(spec, tmp_path_factory.mktemp("sglang"), sglang, within_s=_START_S) as started:
        yield started


async def test_it_says_what_llamacpp_says(engine: ServedEngine) -> None:
    async with engine.asked() as client:
        assert await said(client, "one") == SENTENCE


async def test_a_stream_says_the_same(engine: ServedEngine) -> None:
    await check_stream(engine)


@pytest.mark.parametrize("path", sorted(ADAPTER.routes))
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
    engine: ServedEngine, sglang: Build
) -> None:
    await check_kv_events(engine, sglang)


def test_it_has_every_flag_that_the_adapter_may_use(sglang: Build, tmp_path: Path) -> None:
    check_flags(ADAPTER, sglang, tmp_path)
