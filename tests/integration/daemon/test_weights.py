"""The daemon's `/v1/weights`: what was fetched, what uses it, and what may go."""

import asyncio
import hashlib
import os
from contextlib import aclosing
from pathlib import Path
from typing import Any

from engines.staging import hold_lock
from engines.stored import list_units, remove_unit
from tests.integration.cli.upped import run_cli
from tests.integration.daemon.stack import Stack
from tests.integration.engines.file_server import serving
from tests.integration.engines.hub_server import COMMIT, HubServer
from tests.rewriting import rewrite

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
        rewrite(stack.layout.environment, f"HF_ENDPOINT={server.address}\nHF_TOKEN=hf_secret\n")
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


async def test_broken_weights_are_found_and_mended_by_the_command(tmp_path: Path) -> None:
    async with serving(HubServer(FILES)) as server:
        source = f"{server.address}/store/used.gguf#sha256={hashlib.sha256(FILES['used.gguf']).hexdigest()}"
        config = f"runtimes: {{r: {{engine: llamacpp, weights: '{source}', enabled: false}}}}\n"
        async with Stack(tmp_path, config) as stack:
            async with aclosing(stack.client.fetch_weights(source)) as lines:
                path = Path([line async for line in lines][-1].done)
            path.write_bytes(b"GGUF evil")

            async def verify(*words: str) -> tuple[int, dict[str, Any]]:
                done = await asyncio.to_thread(run_cli, "weights", "verify", *words, "--json", state=tmp_path)
                return done.code, done.json

            told = await asyncio.to_thread(run_cli, "weights", "verify", "r", state=tmp_path)
            code, broken = await verify("r")
            mended_code, mended = await verify("--apply")
            whole_code, whole = await verify(source)
            unknown_code, unknown = await verify("nobody")

    assert told.code == code == 10 and path.read_bytes() == FILES["used.gguf"]
    assert hashlib.sha256(b"GGUF evil").hexdigest() in told.out and "llmgw weights verify r --apply" in told.out
    assert (broken["ok"], broken["files"][0]["state"], broken["restart"]) == (False, "differs", [])
    assert broken["files"][0]["expected"] == source[-64:]
    assert (mended_code, mended["ok"], mended["files"][0]["state"]) == (0, True, "mended")
    assert (whole_code, whole["files"][0]["state"]) == (0, "whole")
    assert (unknown_code, unknown["error"]["code"]) == (4, "weights_not_fetched")


async def test_what_was_fetched_for_a_runtime_is_not_pruned_because_a_file_of_it_is_gone(tmp_path: Path) -> None:
    async with serving(HubServer({**FILES, "m.safetensors": b"m"})) as server, Stack(tmp_path, "") as stack:
        rewrite(stack.layout.environment, f"HF_ENDPOINT={server.address}\n")
        async with aclosing(stack.client.fetch_weights("hf:org/model")) as lines:
            path = Path([line async for line in lines][-1].done)
        stack.write_config("runtimes: {r: {engine: vllm, weights: 'hf:org/model', enabled: false}}\n")
        await stack.client.reload()
        (path / ".complete").unlink()

        removed = (await stack.client.prune_weights(apply=True)).weights

    assert removed == [] and path.is_dir()


async def test_two_who_look_at_once_share_one_job(tmp_path: Path) -> None:
    async with serving(HubServer(FILES)) as server, Stack(tmp_path, "") as stack:
        source = f"{server.address}/store/used.gguf#sha256={hashlib.sha256(FILES['used.gguf']).hexdigest()}"
        async with aclosing(stack.client.fetch_weights(source)) as lines:
            path = Path([line async for line in lines][-1].done)
        path.unlink()
        os.mkfifo(path.with_name("in-the-way"))

        async def look() -> list[str]:
            async with aclosing(stack.client.verify_weights(apply=True)) as steps:
                return [file.state async for step in steps if step.verified for file in step.verified.files]

        states = await asyncio.gather(look(), look())
        asked = [path for path in server.asked if path.startswith("/store/")]

    assert states[0] in (["noDigest", "mended"], ["noDigest", "whole"]) and len(asked) == 2
