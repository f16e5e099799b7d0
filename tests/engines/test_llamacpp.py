"""llama.cpp for real: the genuine llama-server, started as the adapter says, with a tiny and with the starter model."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from core.process import run_process
from engines.adapter import Build, EngineSpec, Health
from engines.install import find_build
from engines.presets import resolve_preset
from tests.engines.promises import progress_of
from tests.engines.running import RunningEngine, running
from tests.engines.tiny_model import CONTEXT, SENTENCE, write_tiny_adapter
from tests.patience import SOON_S

pytestmark = pytest.mark.engine

CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "hello"}]


def a_spec(model: Path, *ids: str, context_length: int = 256, slots: int = 2, **options: str | bool) -> EngineSpec:
    return EngineSpec(
        "r",
        "llamacpp",
        ids or ("tiny",),
        0,
        weights=model,
        context_length=context_length,
        max_concurrency=slots,
        options=options,
    )


async def slots(engine: RunningEngine) -> list[dict[str, int]]:
    answer: list[dict[str, int]] = json.loads((await engine.ask("/slots")).body)
    return answer


async def until(holds: Callable[[], Awaitable[bool]], within_s: float) -> None:
    """Ask again and again."""
    async with asyncio.timeout(within_s):
        while not await holds():  # noqa: ASYNC110 - an engine is asked, it does not tell
            await asyncio.sleep(0.01)


async def test_it_answers_whole_and_streamed_and_counts(llamacpp: Build, tiny_model: Path, tmp_path: Path) -> None:
    async with running(a_spec(tiny_model), tmp_path, llamacpp) as engine:
        whole = json.loads((await engine.ask(CHAT, {"model": "tiny", "messages": HELLO})).body)
        body = {"model": "tiny", "messages": HELLO, "stream": True, "stream_options": {"include_usage": True}}
        streamed = (await engine.ask(CHAT, body)).body.decode()
        # It takes the end of an answer into account a moment after it was given.
        async with asyncio.timeout(SOON_S):
            while (progress := await progress_of(engine)).running:  # noqa: ASYNC110 - it is asked, it does not tell
                await asyncio.sleep(0.01)

    events = [event.removeprefix("data: ") for event in streamed.split("\n\n") if event]
    chunks = [json.loads(event) for event in events[:-1]]
    text = "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"])
    assert whole["choices"][0]["message"]["content"] == text == SENTENCE
    assert whole["choices"][0]["finish_reason"] == "stop"
    assert whole["model"] == "tiny"
    assert events[-1] == "[DONE]"
    assert chunks[-1]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
    # The second prompt was in the cache, so the engine counts it once or in part.
    assert progress.tokens_total is not None and progress.tokens_total >= whole["usage"]["total_tokens"]
    assert (progress.running, progress.waiting) == (0, 0)


@pytest.mark.parametrize(("scale", "text"), [("", SENTENCE.split(" ")[0]), (":0", SENTENCE)])
async def test_an_adapter_changes_what_it_says_by_its_scale(
    scale: str, text: str, llamacpp: Build, tiny_model: Path, tmp_path: Path
) -> None:
    adapter = write_tiny_adapter(tmp_path / "adapter.gguf")
    async with running(a_spec(tiny_model, lora=f"{adapter}{scale}"), tmp_path, llamacpp) as engine:
        whole = json.loads((await engine.ask(CHAT, {"model": "tiny", "messages": HELLO})).body)

    assert whole["choices"][0]["message"]["content"] == text


@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/metrics", "/slots", "/props"])
async def test_the_key_is_demanded(path: str, llamacpp: Build, tiny_model: Path, tmp_path: Path) -> None:
    body = {"messages": HELLO, "prompt": "x"} if path.startswith("/v1") else None
    async with running(a_spec(tiny_model), tmp_path, llamacpp) as engine:
        assert (await engine.ask(path, body, key="wrong")).status == 401
        assert (await engine.ask("/health", key="wrong")).status == 200


@pytest.mark.parametrize(
    ("context_length", "count", "each"), [(256, 1, 256), (256, 3, 256), (0, 1, CONTEXT), (0, 3, CONTEXT)]
)
async def test_each_request_may_use_the_context_that_was_promised(
    context_length: int, count: int, each: int, llamacpp: Build, tiny_model: Path, tmp_path: Path
) -> None:
    spec = a_spec(tiny_model, context_length=context_length, slots=count)
    async with running(spec, tmp_path, llamacpp) as engine:
        seen = await slots(engine)

    assert [slot["n_ctx"] for slot in seen] == [each] * count


@pytest.mark.parametrize("model", ["%n $HOME ${HOME}", "--host", "'\"\\", "org/model:tag", "ü b", "a;b`id`"])
async def test_a_strange_id_arrives_as_it_is(model: str, llamacpp: Build, tiny_model: Path, tmp_path: Path) -> None:
    async with running(a_spec(tiny_model, model, "other"), tmp_path, llamacpp) as engine:
        answer = json.loads((await engine.ask(CHAT, {"model": "other", "messages": HELLO, "max_tokens": 1})).body)

    assert answer["model"] == model


@pytest.mark.parametrize(("stream", "after_first_byte"), [(True, True), (True, False), (False, False)])
async def test_a_client_that_leaves_frees_its_slot(
    stream: bool, after_first_byte: bool, llamacpp: Build, starter_model: Path, tmp_path: Path
) -> None:
    """Its log tells: asking `/slots` meanwhile would hold up what is tested (see the adapter's docstring).

    The tiny model would be through with its whole context in half a second, before anybody could leave.
    """
    async with running(a_spec(starter_model, context_length=CONTEXT, slots=1), tmp_path, llamacpp) as engine:

        async def is_in_log(words: str) -> bool:
            return words in engine.log.read_text()

        body = {"messages": HELLO, "stream": stream, "ignore_eos": True, "max_tokens": 100_000}
        reader, writer = await engine.begin(CHAT, body)
        if after_first_byte:
            await reader.readuntil(b"content")
        await until(lambda: is_in_log("processing task"), 30)
        writer.close()

        # A buffered answer's connection is looked at once a second, and later on a busy machine.
        await until(lambda: is_in_log("cancel task"), 30)
        assert (await engine.ask(CHAT, {"messages": HELLO, "max_tokens": 1})).status == 200


async def test_a_loading_engine_says_so_and_sigterm_ends_it(
    llamacpp: Build, starter_model: Path, tmp_path: Path
) -> None:
    async with running(a_spec(starter_model), tmp_path, llamacpp, wait=False) as engine:
        await engine.wait_health(Health.LOADING)
        await engine.wait_health(Health.READY)
        engine.process.terminate()
        async with asyncio.timeout(30):
            assert await engine.process.wait() == 0


@pytest.mark.parametrize("data", [b"", b"GGUF", b"GGUF" + bytes(100), b"<html>"], ids=ascii)
async def test_a_broken_file_ends_it_with_a_reason(data: bytes, llamacpp: Build, tmp_path: Path) -> None:
    (tmp_path / "broken.gguf").write_bytes(data)

    said = ""
    for _ in range(20):
        async with running(a_spec(tmp_path / "broken.gguf"), tmp_path, llamacpp, wait=False) as engine:
            async with asyncio.timeout(60):
                assert await engine.process.wait() == 1
            said = engine.log.read_text()
        if "failed to load model" in said:
            return
    # b10068 does not wait for the thread that writes its log: one end in ten, or more on a busy machine, has no reason.
    pytest.fail(f"it never said why: {said}")


async def test_embeddings_are_an_option(llamacpp: Build, tiny_model: Path, tmp_path: Path) -> None:
    spec = a_spec(tiny_model, embeddings=True, pooling="mean")
    async with running(spec, tmp_path, llamacpp) as engine:
        answer = json.loads((await engine.ask("/v1/embeddings", {"input": "hello", "model": "tiny"})).body)

    assert len(answer["data"][0]["embedding"]) == 320


async def test_every_flag_of_ours_is_in_the_engines_own_help(llamacpp: Build, tiny_model: Path, tmp_path: Path) -> None:
    text = (await run_process([str(llamacpp.executable), "--help"], timeout_s=10)).text
    async with running(a_spec(tiny_model), tmp_path, llamacpp) as engine:
        argv = Path(f"/proc/{engine.process.pid}/cmdline").read_bytes().decode().split("\0")

    for flag in (word for word in argv if word.startswith("--")):
        assert flag in text.replace(",", " ").split(), flag


@pytest.mark.parametrize(
    ("word", "accepted"), [("--list_devices", True), ("--list-device", False), ("--port=1", False)]
)
async def test_it_spells_flags_as_the_policy_assumes(word: str, accepted: bool, llamacpp: Build) -> None:
    done = await run_process([str(llamacpp.executable), word], timeout_s=10, check=False)

    assert (done.code == 0) == accepted


async def test_the_installed_build_is_found_again_and_stands_on_its_own(llamacpp: Build) -> None:
    engines_dir = llamacpp.executable.parents[3]

    assert find_build("llamacpp", "", engines_dir) == llamacpp
    assert not (await run_process([str(llamacpp.executable), "--version"], timeout_s=10)).code


@pytest.mark.parametrize("stream", [True, False])
async def test_the_starter_model_knows_the_capital_of_france(
    stream: bool, llamacpp: Build, starter_model: Path, tmp_path: Path
) -> None:
    preset = resolve_preset("smollm2-135m")
    spec = a_spec(starter_model, preset.id, context_length=preset.context_length, slots=1)
    spec = replace(spec, args=tuple(preset.args))
    question = [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}]
    async with running(spec, tmp_path, llamacpp) as engine:
        body = {"model": preset.id, "messages": question, "max_tokens": 40, "temperature": 0, "stream": stream}
        reply = await engine.ask(CHAT, body)
        memory = next(
            line for line in Path(f"/proc/{engine.process.pid}/status").read_text().splitlines() if "VmHWM" in line
        )

    assert b"Paris" in reply.body
    assert int(memory.split()[1]) >> 10 <= preset.memory_mib
