"""The daemon's `/v1/weights`: what was fetched, what uses it, and what may go."""

import asyncio
import hashlib
from contextlib import aclosing
from pathlib import Path

from engines.staging import hold_lock
from engines.stored import list_units, remove_unit
from tests.integration.daemon.stack import Stack
from tests.integration.engines.hub_server import COMMIT, HubServer, serving

FILES = {"used.gguf": b"GGUF used", "unused.gguf": b"GGUF unused"}


async def test_weights_are_fetched_listed_and_pruned_but_not_under_a_runtime(tmp_path: Path) -> None:
    async with serving(HubServer(FILES)) as server:
        sources = {n: f"{server.address}/store/{n}#sha256={hashlib.sha256(d).hexdigest()}" for n, d in FILES.items()}
        config = f"runtimes: {{r: {{engine: llamacpp, weights: '{sources['used.gguf']}', enabled: false}}}}\n"
        async with Stack(tmp_path, config) as stack:
            for source in sources.values():
                async with aclosing(stack.client.fetch_weights(source)) as lines:
                    assert [line async for line in lines][-1].done.endswith(".gguf")
            listed = (await stack.client.weights()).weights
            would = (await stack.client.prune_weights(apply=False)).weights
            removed = (await stack.client.prune_weights(apply=True)).weights
            left = (await stack.client.weights()).weights

    assert sorted(one.used_by for one in listed) == [[], ["r"]]
    assert would == removed and [one.used_by for one in removed] == [[]]
    assert [one.used_by for one in left] == [["r"]]


async def test_the_token_and_the_mirror_come_from_the_environment_file(tmp_path: Path) -> None:
    async with serving(HubServer(FILES, token="hf_secret")) as server, Stack(tmp_path, "") as stack:
        stack.layout.environment.write_text(f"HF_ENDPOINT={server.address}\nHF_TOKEN=hf_secret\n")
        async with aclosing(stack.client.fetch_weights("hf:org/model:used.gguf")) as lines:
            last = [line async for line in lines][-1]

    assert last.done.endswith(f"hf/org--model/{COMMIT}/used.gguf"), last.error
    assert "hf_secret" not in stack.log_text()


async def test_what_is_being_fetched_is_left_alone_and_a_pruned_model_is_forgotten(tmp_path: Path) -> None:
    model = tmp_path / "hf/org--model"
    (model / COMMIT).mkdir(parents=True)
    (model / "refs").mkdir()
    (model / "refs/main").write_text(COMMIT + "\n")
    (model / "refs/other").write_text("0" * 40)
    (tmp_path / "package/.staging-x").mkdir(parents=True)
    [unit] = list_units(tmp_path)

    async with hold_lock(model / ".lock", timeout_s=1, what="a test"):
        assert await asyncio.to_thread(remove_unit, unit) is False
    assert remove_unit(unit) is True
    assert list_units(tmp_path) == []
    assert [ref.name for ref in (model / "refs").iterdir()] == ["other"]
