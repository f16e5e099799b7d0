"""What an engine that serves the tiny model must keep, asked of a running one: vLLM's and SGLang's tests share it."""

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

from core.process import run_process
from engines.adapter import Build, EngineAdapter, Progress
from engines.adapters.interpreter import python_of
from engines.check import check_help, help_command
from engines.kv_events import kv_events
from engines.registry import get_adapter
from tests.engines.running import KEY, EngineClient, ServedEngine
from tests.engines.tiny_model import SENTENCE

CHAT = "/v1/chat/completions"
PROMPT = "a prompt that fills more than one block of the cache " * 3
KV_SUBSCRIBER = Path(__file__).with_name("kv_subscriber.py")


def a_request(model: str = "one", **more: object) -> dict[str, object]:
    return {"model": model, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 64, **more}


async def said(client: EngineClient, model: str) -> str:
    reply = await client.ask(CHAT, a_request(model), timeout_s=100.0)
    assert reply.status == 200, reply.body
    return str(json.loads(reply.body)["choices"][0]["message"]["content"])


async def progress_of(client: EngineClient) -> Progress:
    return get_adapter(client.spec.engine).read_progress((await client.ask("/metrics")).body.decode())


async def check_stream(engine: ServedEngine) -> None:
    """A stream says the same, in pieces."""
    async with engine.asked() as client:
        reply = await client.ask(CHAT, a_request(stream=True))
    events = [line.removeprefix("data: ") for line in reply.body.decode().split("\n\n") if line]
    choices = [choice for event in events[:-1] for choice in json.loads(event)["choices"]]
    pieces = [choice["delta"].get("content") or "" for choice in choices]
    assert "".join(pieces) == SENTENCE
    assert len(pieces) > 5
    assert events[-1] == "[DONE]"


async def check_key_is_hidden(engine: ServedEngine) -> None:
    """No other user can read it: not in a command line, and not in the engine's log."""
    listed = await run_process(["ps", "-A", "-ww", "-o", "args"], timeout_s=20.0)
    assert KEY not in listed.stdout.decode()
    assert KEY not in engine.log.read_text()


async def check_counts_move(engine: ServedEngine) -> None:
    async with engine.asked() as client:
        before = await progress_of(client)
        await said(client, "one")
        # SGLang counts an answer a moment after it was given.
        async with asyncio.timeout(30):
            while ((after := await progress_of(client)).tokens_total or 0) <= (before.tokens_total or 0):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
    assert None not in (after.running, after.waiting, after.tokens_total)


async def check_abort(engine: ServedEngine) -> None:
    """A client that leaves in the middle of a long answer keeps the engine busy no longer."""
    async with engine.asked() as client:
        reader, writer = await client.begin(CHAT, a_request(stream=True, max_tokens=400, ignore_eos=True))
        await reader.readuntil(b"data:")
        writer.close()
        async with asyncio.timeout(60):
            while (await progress_of(client)).running != 0:  # noqa: ASYNC110 - an engine is asked, it does not tell
                await asyncio.sleep(0.1)


async def check_kv_events(engine: ServedEngine, build: Build) -> None:
    """Who listens hears of the blocks of each new prompt, and who comes later can ask for what was before."""
    events = kv_events(engine.spec)
    assert events is not None
    program = (str(python_of(build)), str(KV_SUBSCRIBER))
    follower = await asyncio.create_subprocess_exec(*program, "follow", events.endpoint, stdout=asyncio.subprocess.PIPE)
    assert follower.stdout is not None
    try:
        async with asyncio.timeout(100), engine.asked() as client:
            assert json.loads(await follower.stdout.readline()) == "ready"
            heard = asyncio.ensure_future(follower.stdout.readline())
            # ZeroMQ says to neither side when a subscriber has arrived: what is published before is lost to it.
            for number in itertools.count():
                reply = await client.ask(CHAT, a_request(messages=[{"role": "user", "content": f"{number} {PROMPT}"}]))
                assert reply.status == 200, reply.body
                if (await asyncio.wait({heard}, timeout=1.0))[0]:
                    break
    finally:
        follower.kill()
        await follower.wait()
    batch = json.loads(await heard)
    assert {event["type"] for event in batch["events"]} <= {"BlockStored", "BlockRemoved"}
    assert batch["events"] in await read_kv_events(engine, build)


async def read_kv_events(engine: ServedEngine, build: Build) -> list[list[dict[str, Any]]]:
    """Everything that it has told since it started, by step."""
    events = kv_events(engine.spec)
    assert events is not None
    argv = (str(python_of(build)), str(KV_SUBSCRIBER), "replay", events.replay)
    done = await run_process(argv, timeout_s=60.0, limit_bytes=16 << 20)
    return [json.loads(line)["events"] for line in done.stdout.splitlines()]


async def blocks_of(engine: ServedEngine, build: Build) -> dict[int, tuple[int, ...]]:
    """Hash -> tokens of all blocks that it has stored since it started, those of `PROMPT` among them."""
    async with engine.asked() as client:
        asked = a_request(messages=[{"role": "user", "content": PROMPT}], max_tokens=1)
        assert (await client.ask(CHAT, asked, timeout_s=100.0)).status == 200
    blocks: dict[int, tuple[int, ...]] = {}
    for event in itertools.chain(*await read_kv_events(engine, build)):
        if event["type"] == "BlockStored":
            tokens, size = event["token_ids"], event["block_size"]
            parts = [tuple(tokens[start : start + size]) for start in range(0, len(tokens), size)]
            blocks |= dict(zip(event["block_hashes"], parts, strict=True))
    assert len(blocks) > 2
    return blocks


def check_flags(adapter: EngineAdapter, build: Build, home: Path) -> None:
    """The engine's own help has every flag that the adapter may use."""
    argv, environment = help_command(adapter, build)
    environment |= {"PATH": "/usr/bin:/bin", "HOME": str(home)}
    # Minutes on a busy machine, so in an event loop without a test's deadline.
    done = asyncio.run(run_process(argv, timeout_s=300.0, env=environment, limit_bytes=16 << 20))
    findings = check_help(adapter, done.stdout.decode())
    assert [finding.status for finding in findings] == ["ok"], findings
