"""What the ledger says against what the engine counted: all kinds of requests at once, some left, and restarts between.

Real processes: daemon, supervisor, simulated engine, gunicorn with two workers. For requests that came to their end the
sums are the engine's own, to the token. For those that were left, the ledger has the prompt as it is usual for the
model and what had come by then; the engine is a token or two further.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from core.client import DaemonUnavailable
from core.usage import UsageList
from tests.integration.daemon.stack import ROOT, Stack, running
from tests.integration.gateway.harness import CHAT, raw_request, render_request
from tests.integration.gateway.workers import Workers, workers
from tests.patience import SOON_S

CONFIG = """
models: [{id: m, runtime: sim}]
aliases: {x: m}
runtimes: {sim: {engine: sim, keepWarm: true, maxConcurrency: 64}}
"""
PROMPT = "one two three four five"
LEFT_AFTER = 12
ENGINE_AHEAD = 4
"""Tokens that the engine may have computed for a client that left, and nobody has seen."""


def body(path: str, number: int, **fields: object) -> bytes:
    said: dict[str, object] = {"model": "x" if number % 5 == 0 else "m", "max_tokens": 6, "sim": {"tokens": 6}}
    if path == "/v1/completions":
        said["prompt"] = PROMPT
    elif path == "/v1/responses":
        said["input"] = PROMPT
    else:
        said["messages"] = [{"role": "user", "content": PROMPT}]
    return json.dumps(said | fields).encode()


async def ask(address: tuple[str, int], number: int) -> None:
    """One whole request: of each dialect, whole or streamed, with usage or without, under its name or another."""
    path = (CHAT, "/v1/completions", "/v1/messages", "/v1/responses")[number % 4]
    streamed: dict[str, object] = {"stream": True} if number % 3 else {}
    if number % 6 == 1 and path in (CHAT, "/v1/completions"):
        streamed["stream_options"] = {"include_usage": True}
    answer = await raw_request(address, path, body(path, number, **streamed))
    assert answer.status == 200, answer.body
    assert b"upstream_" not in answer.body


async def leave(address: tuple[str, int], number: int) -> None:
    """One stream of which `LEFT_AFTER` tokens are read."""
    pace = {"tokens": 500, "tokensPerS": 20}
    reader, writer = await asyncio.open_connection(*address)
    writer.write(render_request(CHAT, body(CHAT, number, stream=True, max_tokens=500, sim=pace)))
    async with asyncio.timeout(SOON_S):
        for _ in range(LEFT_AFTER + 1):
            await reader.readuntil(b"data: ")
    writer.close()


async def until(stack: Stack, holds: Callable[[UsageList], bool], **asked: str) -> UsageList:
    """The ledger, once it is as wanted; it is asked, it does not tell."""
    found: UsageList | None = None
    try:
        async with asyncio.timeout(SOON_S):
            while found is None or not holds(found):
                await asyncio.sleep(0.05)
                with contextlib.suppress(DaemonUnavailable):
                    found = await stack.client.usage(asked)
    except TimeoutError:
        raise AssertionError(f"never happened; the ledger has {found}") from None
    return found


async def engine_counts(stack: Stack) -> dict[str, int]:
    status = await stack.until_runtime("sim", "running")
    (key_file,) = stack.layout.keys.iterdir()
    headers = {"authorization": f"Bearer {key_file.read_text().strip()}"}
    answer = await raw_request(("127.0.0.1", status.port), "/sim/stats", method="GET", headers=headers)
    counts: dict[str, int] = json.loads(answer.body)
    return counts


async def all_at_once(ask_one: Callable[[tuple[str, int], int], Awaitable[None]], at: Workers, numbers: range) -> None:
    async with asyncio.TaskGroup() as group:
        for number in numbers:
            group.create_task(ask_one(at.address, number))  # type: ignore[arg-type]


async def test_the_ledger_is_what_the_engine_counted(tmp_path: Path) -> None:
    async with running(tmp_path, CONFIG) as stack:
        await stack.until_runtime("sim", "running")
        before = await engine_counts(stack)
        async with workers(tmp_path, 2) as gateway:
            await all_at_once(ask, gateway, range(0, 60))
            await until(stack, lambda found: found.total.requests == 60)
            stack.kill(stack.daemon)
            await all_at_once(ask, gateway, range(60, 90))  # counted while the daemon is away
            stack.start_daemon()
            await until(stack, lambda found: found.total.requests == 90)
            await all_at_once(ask, gateway, range(90, 120))
            gateway.process.send_signal(signal.SIGTERM)  # at once: nothing of the last second is reported yet
            await gateway.process.wait()
        whole = (await until(stack, lambda found: found.total.requests >= 120)).total
        counted = await engine_counts(stack)
        assert whole.requests == 120 and whole.estimated == 0 and whole.cut_short == 0
        assert whole.prompt_tokens == counted["promptTokens"] - before["promptTokens"] == 120 * 5
        assert whole.completion_tokens == counted["tokens"] - before["tokens"] == 120 * 6

        # One worker: each must have seen some whole requests before it estimates well.
        async with workers(tmp_path, 1) as gateway:
            await all_at_once(ask, gateway, range(0, 80, 4))
            await all_at_once(leave, gateway, range(1, 13))
            mixed = (await until(stack, lambda found: found.total.requests == 152)).total
        after = await engine_counts(stack)
    assert (mixed.cut_short, mixed.estimated) == (12, 12)
    assert mixed.wasted_tokens == mixed.estimated_tokens
    told = mixed.prompt_tokens + mixed.completion_tokens - mixed.estimated_tokens
    assert told == 140 * (5 + 6)
    seen = mixed.completion_tokens - 140 * 6
    computed = after["tokens"] - before["tokens"] - 140 * 6
    assert 12 * (LEFT_AFTER - 1) <= seen <= computed <= seen + 12 * ENGINE_AHEAD
    assert abs(mixed.prompt_tokens - (after["promptTokens"] - before["promptTokens"])) <= 12 * 2


async def test_a_worker_that_is_killed_takes_at_most_a_second_with_it(tmp_path: Path) -> None:
    async with running(tmp_path, CONFIG) as stack, workers(tmp_path, 1) as gateway:
        await stack.until_runtime("sim", "running")
        await all_at_once(ask, gateway, range(0, 8))
        await until(stack, lambda found: found.total.requests == 8)
        await raw_request(gateway.address, CHAT, body(CHAT, 1))
        (worker,) = gateway.children()
        os.kill(worker, signal.SIGKILL)
        await gateway.wait_children(1, without=worker)
        await gateway.wait_ready()
        await all_at_once(ask, gateway, range(0, 4))
        found = await until(stack, lambda found: found.total.requests >= 12)
        assert found.total.requests in (12, 13)


async def test_the_command_and_the_gateway_show_the_same(tmp_path: Path) -> None:
    async with running(tmp_path, CONFIG) as stack, workers(tmp_path, 1) as gateway:
        await stack.until_runtime("sim", "running")
        await all_at_once(ask, gateway, range(0, 8))
        await until(stack, lambda found: found.total.requests == 8)
        shown = await asyncio.to_thread(llmgw, tmp_path, "usage", "--json", "--by", "model")
        answer = await raw_request(gateway.address, "/gateway/usage?by=model", method="GET")
        assert json.loads(shown.stdout) == json.loads(answer.body)
        (row,) = json.loads(shown.stdout)["rows"]
        assert (row["model"], row["requests"], row["promptTokens"], row["completionTokens"]) == ("m", 8, 40, 48)
        table = await asyncio.to_thread(llmgw, tmp_path, "usage")
        assert [line.split()[:3] for line in table.stdout.splitlines()[1:]][0] == ["DAY", "KEY", "MODEL"]
        assert table.stdout.splitlines()[2].split()[1:] == ["-", "m", "8", "0", "40", "0", "48", "0", "0"]
        none = await asyncio.to_thread(llmgw, tmp_path, "usage", "--model", "other")
        assert none.stdout.splitlines()[1] == "No requests."
        for wrong in (["--from", "yesterday"], ["--by", "colour"]):
            refused = await asyncio.to_thread(llmgw, tmp_path, "usage", *wrong)
            assert refused.returncode == 2 and "hint:" in refused.stderr


def llmgw(state: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "cli", "--state", str(state), *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
