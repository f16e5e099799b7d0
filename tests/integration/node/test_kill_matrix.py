"""SIGKILL of each process of a node while idle, loading and streaming.

After each, within its bound, the wanted runtime serves again, exactly once, and when the node is told to stop,
nothing is left over.
"""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.integration.node.up import VICTIMS, Up, one_model

BOUND_S = 60.0
LOAD_S = 1.5


async def until_loading(up: Up) -> None:
    await up.until(lambda: bool(up.engine_pids()) and len(up.gateway_pids()) == 3, BOUND_S)


async def stream_for_a_while(up: Up) -> None:
    """A long stream; how it ends does not matter here, that the node survives it does."""
    reader, writer = await asyncio.open_connection("127.0.0.1", up.port)
    body = (
        b'{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}],"sim":{"tokens":400,"tokensPerS":40}}'
    )
    head = (
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    )
    writer.write(head % len(body) + body)
    try:
        while await reader.read(65536):
            pass
    except ConnectionError:
        pass
    finally:
        writer.close()


async def kill_at(up: Up, victim: str, phase: str) -> None:
    """Bring the node into the phase, then SIGKILL."""
    if phase == "loading":
        await until_loading(up)
    else:
        await up.until_serving(BOUND_S)
    stream = asyncio.create_task(stream_for_a_while(up)) if phase == "streaming" else None
    if stream is not None:
        await asyncio.sleep(0.3)  # into the stream: there is no event for "some tokens have passed"
    pids = VICTIMS[victim](up)
    assert pids, f"no {victim} runs"
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    if stream is not None:
        stream.cancel()
        await asyncio.gather(stream, return_exceptions=True)
    await up.until(lambda: not set(pids) & set(up.pids()), BOUND_S)


@pytest.mark.parametrize("phase", ["idle", "loading", "streaming"])
@pytest.mark.parametrize("victim", sorted(VICTIMS))
async def test_a_killed_process_comes_back_and_everything_serves_once(tmp_path: Path, victim: str, phase: str) -> None:
    options = f"loadTimeS: {LOAD_S}" if phase == "loading" else ""
    async with Up(tmp_path, one_model(options)) as up:
        engines_before: list[int] = []
        if phase != "loading":
            await up.until_serving(BOUND_S)
            engines_before = up.engine_pids()
        await kill_at(up, victim, phase)
        await up.until_serving(BOUND_S)
        await up.until(lambda: len(up.engine_pids()) == 1 and len(up.gateway_pids()) == 3, BOUND_S)
        await up.until(lambda: len(up.pids_with("daemon")) == 1 and len(up.pids_with("units.embedded")) == 1, BOUND_S)
        if victim != "engine" and engines_before:
            assert up.engine_pids() == engines_before, "the engine was restarted for nothing"
        assert up.process is not None
        up.process.terminate()
        assert await asyncio.to_thread(up.process.wait, 30) == 0
        assert up.pids() == []
