"""vLLM itself under a whole node, with LoRA adapters that are loaded when they are asked for: one at a time."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from core.client import DaemonClient
from core.paths import Layout
from engines.adapter import Build
from tests.engines.test_vllm import OPTIONS
from tests.engines.tiny_folder import LORA_SENTENCE
from tests.engines.tiny_model import SENTENCE
from tests.integration.daemon.stack import free_port, port_range
from tests.integration.node.up import Up

pytestmark = pytest.mark.engine

_START_S = 300.0
_WIDE = 64
"""A rank that vLLM does not take unless it is told to."""


def copy_adapter(source: Path, to: Path, rank: int | None = None) -> Path:
    shutil.copytree(source, to)
    if rank is not None:
        told = json.loads((to / "adapter_config.json").read_text())
        (to / "adapter_config.json").write_text(json.dumps({**told, "r": rank}))
    return to


async def says(up: Up, model: str) -> str:
    """What the model answers, or the code of the refusal."""
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "hi"}]}).encode()
    headers = {"Content-Type": "application/json"}
    reply = await up.http.fetch("POST", "/v1/chat/completions", headers=headers, body=body, timeout_s=_START_S)
    told = json.loads(reply.body)
    return str(told["error"]["code"] if reply.status != 200 else told["choices"][0]["message"]["content"])


# A start takes longer than a test's event loop may live, so these bring their own.
def test_adapters_take_turns_in_an_engine_that_goes_on_serving(
    vllm: Build, tiny_folder: Path, tiny_lora: Path, tmp_path: Path
) -> None:
    adapters = {
        "first": copy_adapter(tiny_lora, tmp_path / "first"),
        "second": copy_adapter(tiny_lora, tmp_path / "second"),
        "wide": copy_adapter(tiny_lora, tmp_path / "wide", rank=_WIDE),
        "empty": tmp_path / "empty",
    }
    adapters["empty"].mkdir()
    low, high = port_range()
    models = "".join(f", {{id: {name}, runtime: r, adapter: {path}}}" for name, path in adapters.items())
    state = tmp_path / "state"
    state.mkdir()
    config = (
        f"server: {{port: {free_port()}, workers: 2}}\nports: {{backends: [{low}, {high}]}}\n"
        f"models: [{{id: base, runtime: r}}{models}]\nengines: {{vllm: {{python: {vllm.executable}}}}}\n"
        f"runtimes: {{r: {{engine: vllm, weights: {tiny_folder}, contextLength: 512, maxConcurrency: 2, memoryGb: 6,"
        f" gpus: 0, maxLoadedAdapters: 1, requestStartupWaitMs: 300000, options: {json.dumps(OPTIONS)}}}}}\n"
    )
    asyncio.run(_take_turns(state, config))


async def _take_turns(state: Path, config: str) -> None:
    async with Up(state, config) as up, DaemonClient(Layout.under(state).daemon_socket) as daemon:
        await up.until_gateway(_START_S)
        assert await says(up, "base") == SENTENCE
        (before,) = (await daemon.state()).runtimes
        for name in ("first", "second", "first"):
            assert await says(up, name) == LORA_SENTENCE
            assert await says(up, "base") == SENTENCE
            assert (await daemon.state()).runtimes[0].adapters == [name]
        assert await says(up, "wide") == await says(up, "empty") == "adapter_failed"
        (after,) = (await daemon.state()).runtimes
        assert (after.state, after.pid) == ("running", before.pid)
        assert "rank" in after.adapter_failures["wide"] and str(_WIDE) in after.adapter_failures["wide"]
        assert after.adapter_failures["empty"]
        assert await says(up, "second") == LORA_SENTENCE
