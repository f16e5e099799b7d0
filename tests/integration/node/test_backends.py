"""A whole node whose model is served by an engine here and by a provider elsewhere: real processes, TLS between.

The provider runs in the test; nothing of the node knows that.
"""

import asyncio
import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from tests.fakes.upstream import FakeUpstream
from tests.integration.daemon.stack import ROOT, free_port, port_range
from tests.integration.gateway.harness import CHAT, Answer, chat, raw_request
from tests.integration.node.up import Up
from tests.rewriting import rewrite

TLS_DATA = Path(__file__).resolve().parents[2] / "data" / "tls"
KEY = "sk-" + "provider-key-0123456789"
PATIENCE_S = 60.0
STEP_S = 0.1


def config(provider: int, *, weight: int = 1) -> str:
    low, high = port_range()
    return f"""
server: {{port: {free_port()}, workers: 2}}
ports: {{backends: [{low}, {high}]}}
backends:
  p: {{baseUrl: "https://localhost:{provider}/api/v1", apiKeyEnv: P_KEY, caFile: {TLS_DATA / "authority.pem"}}}
models:
  - id: m
    targets: [{{runtime: r}}, {{backend: p, upstreamModel: org/m, weight: {weight}}}]
  - {{id: far, backend: p}}
runtimes: {{r: {{engine: sim, keepWarm: true, maxConcurrency: 4}}}}
""".lstrip()


@contextlib.asynccontextmanager
async def serving(state: Path) -> AsyncIterator[tuple[Up, FakeUpstream]]:
    (state / "environment").write_text(f"P_KEY={KEY}\n")
    async with (
        FakeUpstream(certificate=TLS_DATA / "provider.pem") as provider,
        Up(state, config(provider.port)) as up,
    ):
        await up.until_gateway(PATIENCE_S)
        await until_runtime(up)
        yield up, provider


async def ask(up: Up, number: int, model_id: str = "m") -> Answer:
    """One answer, of a worker that has its routes."""
    body = json.loads(chat(model_id)) | {"messages": [{"role": "user", "content": f"question {number}"}]}
    while True:
        answer = await raw_request(("127.0.0.1", up.port), CHAT, json.dumps(body).encode())
        if answer.status != 503 or answer.error["code"] != "gateway_not_ready":
            return answer
        await asyncio.sleep(STEP_S)


async def until_calm(up: Up, count: int) -> list[Answer]:
    """The first so many answers in a row that are good."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            answers = [await ask(up, number) for number in range(count)]
            if all(answer.status == 200 for answer in answers):
                return answers


async def until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not done():  # noqa: ASYNC110 - other processes change without an event for us
            await asyncio.sleep(STEP_S)


def llmgw(up: Up, *words: str) -> dict[str, list[dict[str, object]]]:
    command = [sys.executable, "-m", "cli", "--state", str(up.state), *words, "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=PATIENCE_S)
    assert KEY.encode() not in done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert isinstance(told, dict)
    return told


async def until_backend(up: Up, state: str) -> dict[str, object]:
    """What `llmgw backends p` says, once it is in this state."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            (row,) = (await asyncio.to_thread(llmgw, up, "backends", "p"))["backends"]
            if row["state"] == state:
                return row
            await asyncio.sleep(STEP_S)


async def test_a_model_goes_on_when_its_engine_dies_and_when_its_provider_does(tmp_path: Path) -> None:
    async with serving(tmp_path) as (up, provider):
        answers = [await ask(up, number) for number in range(16)]
        (engine,) = up.engine_pids()
        os.kill(engine, signal.SIGKILL)
        answers += [await ask(up, number) for number in range(100, 116)]
        await until(lambda: bool(up.engine_pids()))
        await until_runtime(up)
        ready = await until_backend(up, "ready")
        await provider.stop()
        alone = await ask(up, 200, "far")
        out = await until_backend(up, "out")
        answers += await until_calm(up, 8)
    assert [answer.status for answer in answers] == [200] * len(answers)
    assert {answer.headers["x-llmgw-target"].partition("/")[2] for answer in answers} == {"r", ""}
    assert {json.loads(answer.body)["model"] for answer in answers} == {"m"}
    assert (alone.status, alone.error["code"]) == (502, "upstream_unreachable")
    assert (ready["hasKey"], ready["keyFrom"], ready["models"]) == (True, "P_KEY", ["m", "far"])
    assert str(out["lastError"]).startswith(("connect failed", "closed early"))


async def until_runtime(up: Up) -> None:
    """Until the engine runs again, as far as the node knows."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            rows = (await asyncio.to_thread(llmgw, up, "runtimes"))["runtimes"]
            if [row["state"] for row in rows] == ["running"]:
                return
            await asyncio.sleep(STEP_S)


async def test_weights_and_keys_are_taken_up_without_restarting_anything(tmp_path: Path) -> None:
    async with serving(tmp_path) as (up, provider):
        before = up.engine_pids()
        text = (tmp_path / "config.yaml").read_text()
        rewrite(tmp_path / "config.yaml", text.replace("upstreamModel: org/m, weight: 1", "upstreamModel: org/n"))
        rewrite(tmp_path / "environment", f"P_KEY={KEY}-new\n")
        llmgw(up, "reload")

        def is_taken_up() -> bool:
            seen = [request for request in provider.seen if json.loads(request.body)["model"] == "org/n"]
            return bool(seen) and seen[-1].headers["Authorization"] == f"Bearer {KEY}-new"

        async with asyncio.timeout(PATIENCE_S):
            for number in range(10_000):
                assert (await ask(up, number)).status == 200
                if is_taken_up():
                    break
        assert up.engine_pids() == before


async def test_the_key_lies_where_the_operator_put_it_and_in_its_file_alone(tmp_path: Path) -> None:
    async with serving(tmp_path) as (up, provider):
        assert (await ask(up, 1, "far")).status == 200
        provider.behaviour.status = 401
        assert (await ask(up, 2, "far")).error["code"] == "upstream_unauthorized"
        for words in (
            ("status",),
            ("backends",),
            ("model", "list"),
            ("config", "show"),
            ("config", "show", "--origin"),
        ):
            llmgw(up, *words)
        holders = {path for path in tmp_path.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()}
        (key_file,) = (tmp_path / "run" / "backend-keys").iterdir()
        modes = [stat.S_IMODE(path.stat().st_mode) for path in (key_file.parent, key_file)]
        commands = [Path(f"/proc/{pid}/{name}").read_bytes() for pid in up.pids() for name in ("cmdline", "environ")]
    assert modes == [0o750, 0o640]
    assert holders == {tmp_path / "environment", key_file}
    assert provider.seen[0].headers["Authorization"] == f"Bearer {KEY}"
    assert not any(KEY.encode() in text for text in commands)
