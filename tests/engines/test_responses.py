"""OpenAI's Responses in front of the genuine llama-server, which is asked for chat completions."""

from pathlib import Path

import pytest
from openai import AsyncOpenAI, BadRequestError

from engines.adapter import Build, EngineSpec
from engines.registry import get_adapter
from tests.engines.running import running
from tests.engines.tiny_model import SENTENCE
from tests.integration.gateway.harness import gateway
from tests.unit.gateway.tables import model, table, target

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("name", ["tiny", "alias"])
async def test_the_sdk_reads_a_response_whole_and_streamed(
    name: str, llamacpp: Build, tiny_model: Path, tmp_path: Path
) -> None:
    spec = EngineSpec("r", "llamacpp", ("tiny",), 0, weights=tiny_model, context_length=512, max_concurrency=2)
    async with running(spec, tmp_path, llamacpp) as engine:
        routes = sorted(get_adapter("llamacpp").routes)
        there = target(port=engine.spec.port, key_file=str(tmp_path / "key"), routes=routes)
        async with (
            gateway(tmp_path, table(model("tiny", there, aliases=("alias",)))) as gw,
            AsyncOpenAI(base_url=f"{gw.url}/v1", api_key="x", max_retries=0) as client,
        ):
            whole = await client.responses.create(model=name, input="hello", instructions="Be brief.")
            async with client.responses.stream(model=name, input="hello", instructions="Be brief.") as stream:
                kinds = [event.type async for event in stream]
                streamed = await stream.get_final_response()
            with pytest.raises(BadRequestError) as caught:
                await client.responses.create(model=name, input="word " * 3000)
    assert whole.output_text == streamed.output_text == SENTENCE
    assert whole.status == streamed.status == "completed"
    assert {whole.model, streamed.model} == {name}
    assert whole.usage is not None and streamed.usage is not None
    assert whole.usage.output_tokens == streamed.usage.output_tokens
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed"
    assert "exceeds the available context size" in caught.value.response.text
