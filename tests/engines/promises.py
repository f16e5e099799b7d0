"""What an engine that serves the tiny model must keep, asked of a running one: vLLM's and SGLang's tests share it."""

import asyncio
import json
from pathlib import Path

from core.process import run_process
from engines.adapter import Build, EngineAdapter, Progress
from engines.check import check_help, help_command
from engines.registry import get_adapter
from tests.engines.running import KEY, EngineClient, ServedEngine
from tests.engines.tiny_model import SENTENCE

CHAT = "/v1/chat/completions"


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


def check_flags(adapter: EngineAdapter, build: Build, home: Path) -> None:
    """The engine's own help has every flag that the adapter may use."""
    argv, environment = help_command(adapter, build)
    environment |= {"PATH": "/usr/bin:/bin", "HOME": str(home)}
    # Minutes on a busy machine, so in an event loop without a test's deadline.
    done = asyncio.run(run_process(argv, timeout_s=300.0, env=environment, limit_bytes=16 << 20))
    findings = check_help(adapter, done.stdout.decode())
    assert [finding.status for finding in findings] == ["ok"], findings
