"""What the gateway charges against what the genuine llama-server counted, in every dialect that it speaks."""

import json
from pathlib import Path

import pytest

from engines.adapter import Build
from engines.prometheus import read_samples
from engines.registry import get_adapter
from tests.engines.running import KEY, RunningEngine, running
from tests.engines.test_llamacpp import HELLO, a_spec
from tests.integration.gateway.harness import CHAT, gateway, raw_request
from tests.unit.gateway.tables import model, table, target

pytestmark = pytest.mark.engine


FIELDS: dict[str, dict[str, object]] = {
    CHAT: {"messages": HELLO, "max_tokens": 9},
    "/v1/completions": {"prompt": "hello", "max_tokens": 9},
    "/v1/messages": {"messages": HELLO, "max_tokens": 9},
    "/v1/responses": {"input": "hello", "max_output_tokens": 9},
}


async def counted(engine: RunningEngine) -> tuple[float, float]:
    """Prompt tokens that were computed, not taken from the cache, and tokens that were predicted."""
    samples = read_samples((await engine.ask("/metrics")).body.decode())
    return samples["llamacpp:prompt_tokens_total"], samples["llamacpp:tokens_predicted_total"]


async def test_the_sums_are_the_engines_own(llamacpp: Build, tiny_model: Path, tmp_path: Path) -> None:
    key_file = tmp_path / "engine.key"
    key_file.write_text(KEY)
    adapter = get_adapter("llamacpp")
    async with running(a_spec(tiny_model), tmp_path, llamacpp) as engine:
        at = target(
            "t", port=engine.spec.port, key_file=str(key_file), routes=sorted(adapter.routes),
            usage_when_asked=adapter.usage_when_asked,
        )  # fmt: skip
        async with gateway(tmp_path / "g", table(model("tiny", at, aliases=("x",)))) as gw:
            asked = 0
            for name in ("tiny", "x"):
                for streamed in ({}, {"stream": True}, {"stream": True, "stream_options": {"include_usage": True}}):
                    for path in FIELDS:
                        if path in ("/v1/messages", "/v1/responses") and "stream_options" in streamed:
                            continue
                        body = json.dumps({"model": name} | FIELDS[path] | streamed).encode()
                        answer = await raw_request((gw.host, gw.port), path, body)
                        assert answer.status == 200, answer.body
                        asked += 1
            total = await gw.daemon.wait_usage(lambda sums: sums.requests >= asked)
            assert total.estimated == 0
            assert (total.prompt_tokens - total.cached_tokens, total.completion_tokens) == await counted(engine)


async def test_embeddings_are_charged_for_what_was_read(llamacpp: Build, tiny_model: Path, tmp_path: Path) -> None:
    key_file = tmp_path / "engine.key"
    key_file.write_text(KEY)
    async with running(a_spec(tiny_model, embeddings=True, pooling="mean"), tmp_path, llamacpp) as engine:
        at = target("t", port=engine.spec.port, key_file=str(key_file))
        async with gateway(tmp_path / "g", table(model("tiny", at))) as gw:
            body = json.dumps({"model": "tiny", "input": ["hello"] * 50}).encode()
            answer = await raw_request((gw.host, gw.port), "/v1/embeddings", body)
            total = await gw.daemon.wait_usage(lambda sums: sums.requests == 1)
    said = json.loads(answer.body)["usage"]["prompt_tokens"]
    assert len(answer.body) > 50_000
    assert (total.prompt_tokens, total.completion_tokens, total.estimated) == (said, 0, 0)
