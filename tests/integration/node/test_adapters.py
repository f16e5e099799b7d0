"""LoRA adapters that are loaded when they are needed, on a whole node, with a fake vLLM as the engine.

What the engine writes down of every load and unload is held against the promises: never more than its slots, and none
gone while it was used.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from core.api import RuntimeStatus
from core.client import DaemonClient
from core.http.client import HttpClient, Reply
from core.paths import Layout
from daemon.runtimes.adapters import PATIENCE_S
from tests.integration.daemon.stack import ROOT, free_port, port_range
from tests.integration.node.up import Up
from tests.rewriting import rewrite

BOUND_S = 60.0
STEP_S = 0.05
FAKE = Path(__file__).parents[2] / "fakes" / "vllm_python.py"
T = TypeVar("T")
NAMES = ("a", "b", "c", "d", "e")


class Event(msgspec.Struct):
    """One line of the fake's `adapters.log`."""

    did: str
    adapter: str
    held: list[str]
    in_use: int


class Node:
    """A node with one engine, its model `base`, and adapters."""

    def __init__(self, up: Up, daemon: DaemonClient, layout: Layout) -> None:
        self.up = up
        self.daemon = daemon
        self.layout = layout
        self.home = layout.homes / "r"

    async def ask(self, model: str, http: HttpClient | None = None) -> Reply:
        body = json.dumps({"model": model, "messages": [{"role": "user", "content": "hi"}]}).encode()
        headers = {"Content-Type": "application/json"}
        client = http or self.up.http
        return await client.fetch("POST", "/v1/chat/completions", headers=headers, body=body, timeout_s=BOUND_S)

    async def says(self, model: str, http: HttpClient | None = None) -> str:
        """What the model answers, or the code of the refusal."""
        reply = await self.ask(model, http)
        told = json.loads(reply.body)
        return str(told["error"]["code"] if reply.status != 200 else told["choices"][0]["message"]["content"])

    async def until_says(self, model: str, words: str) -> None:
        await self.until(lambda: self.says(model), lambda said: said == words)

    async def until_runtime(self, holds: Callable[[RuntimeStatus], bool]) -> RuntimeStatus:
        async def look() -> RuntimeStatus:
            return (await self.daemon.state()).runtimes[0]

        return await self.until(look, holds)

    async def until(self, look: Callable[[], Awaitable[T]], holds: Callable[[T], bool]) -> T:
        found: T | None = None
        try:
            async with asyncio.timeout(BOUND_S):
                while True:
                    found = await look()
                    if holds(found):
                        return found
                    await asyncio.sleep(STEP_S)
        except TimeoutError:
            raise AssertionError(f"never happened; the last was {found}") from None

    async def run(self, *words: str) -> bytes:
        """An `llmgw` command; what it says."""
        command = [sys.executable, "-m", "cli", "--state", str(self.up.state), *words]
        process = await asyncio.create_subprocess_exec(
            *command, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        said, complaint = await process.communicate()
        assert process.returncode == 0, complaint.decode()
        return said

    def events(self) -> list[Event]:
        return read_events(self.home)

    def loads(self) -> list[str]:
        return [event.adapter for event in self.events() if event.did == "load"]


def read_events(home: Path) -> list[Event]:
    """What the engine has loaded and unloaded, in all its lives."""
    log = home / "adapters.log"
    return [msgspec.json.decode(line, type=Event) for line in log.read_bytes().splitlines()] if log.exists() else []


def write_adapter(folder: Path, rank: int = 8, slow_s: float = 0.0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps({"r": rank}))
    if slow_s:
        (folder / "slow").write_text(str(slow_s))
    return folder


def config_text(state: Path, port: int, ports: tuple[int, int], adapters: dict[str, Path], settings: str) -> str:
    models = "".join(f", {{id: {name}, runtime: r, adapter: {path}}}" for name, path in adapters.items())
    return (
        f"server: {{port: {port}, workers: 2}}\nports: {{backends: [{ports[0]}, {ports[1]}]}}\n"
        f"models: [{{id: base, runtime: r}}{models}]\n"
        f"engines: {{vllm: {{python: {state / 'python'}}}}}\n"
        f"runtimes: {{r: {{engine: vllm, weights: {state}, memoryGb: 0.5, gpus: 0, keepWarm: true,"
        f" maxConcurrency: 8, maxQueuedRequests: 200, {settings}}}}}\n"
    )


@asynccontextmanager
async def node(
    tmp_path: Path, adapters: dict[str, Path], settings: str = "maxLoadedAdapters: 2", more: str = ""
) -> AsyncIterator[Node]:
    """A node whose engine serves."""
    state = tmp_path / "state"
    state.mkdir()
    python = state / "python"
    python.write_text(f"#!{sys.executable}\n{FAKE.read_text()}")
    python.chmod(0o755)
    text = more + config_text(state, free_port(), port_range(), adapters, settings)
    layout = Layout.under(state)
    async with Up(state, text) as up, DaemonClient(layout.daemon_socket) as daemon:
        await up.until_gateway(BOUND_S)
        one = Node(up, daemon, layout)
        await one.until_says("base", "yes")
        yield one


async def test_fifty_clients_over_five_adapters_with_room_for_two(tmp_path: Path) -> None:
    async with node(tmp_path, {name: write_adapter(tmp_path / name) for name in NAMES}) as one:
        (one.home / "slow").write_text("0.02")

        async def client(number: int) -> list[tuple[str, str]]:
            async with HttpClient(base_url=f"http://127.0.0.1:{one.up.port}") as http:
                asked = [NAMES[(number * 7 + turn * 3) % 5] for turn in range(4)]
                return [(name, await one.says(name, http)) for name in asked]

        answers = await asyncio.gather(*(client(number) for number in range(50)))

        assert {answer for each in answers for answer in each} == {(name, f"as {name}") for name in NAMES}
        events = one.events()
        assert max(len(event.held) for event in events) == 2
        assert [event for event in events if event.did == "unload" and event.in_use] == []
        assert len(one.loads()) < 200, "they take turns, and do not drive each other out with every request"


async def test_many_requests_for_one_adapter_are_one_load(tmp_path: Path) -> None:
    async with node(tmp_path, {"a": write_adapter(tmp_path / "a", slow_s=0.5)}) as one:
        assert await asyncio.gather(*(one.says("a") for _ in range(20))) == ["as a"] * 20
        assert one.loads() == ["a"]
        await one.until_runtime(lambda runtime: runtime.adapters == ["a"])


async def test_adapters_are_models_with_a_parent_a_key_and_usage_of_their_own(tmp_path: Path) -> None:
    async with node(tmp_path, {"a": write_adapter(tmp_path / "a")}) as one:
        listed = json.loads((await one.up.http.fetch("GET", "/v1/models", timeout_s=BOUND_S)).body)["data"]
        assert [(model["id"], model.get("parent")) for model in listed] == [("base", None), ("a", "base")]
        assert json.loads((await one.ask("a")).body)["model"] == "a"
        usage = await one.until(lambda: one.daemon.usage({"by": "model"}), lambda found: len(found.rows) == 2)
        assert sorted(row.model for row in usage.rows) == ["a", "base"]


async def test_an_adapter_that_the_engine_refuses_concerns_its_own_requests_alone(tmp_path: Path) -> None:
    adapters = {
        "good": write_adapter(tmp_path / "good"),
        "wide": write_adapter(tmp_path / "wide", rank=64),
        "gone": tmp_path / "gone",
    }
    (tmp_path / "gone").mkdir()
    async with node(tmp_path, adapters) as one:
        before = await one.until_runtime(lambda runtime: runtime.state == "running")
        assert await one.says("wide") == await one.says("gone") == "adapter_failed"
        assert await one.says("good") == "as good"
        after = await one.until_runtime(lambda runtime: len(runtime.adapter_failures) == 2)
        assert (after.state, after.pid, after.adapters) == ("running", before.pid, ["good"])
        assert "rank 64 is greater than max_lora_rank 16" in after.adapter_failures["wide"]
        assert "No adapter found" in after.adapter_failures["gone"]
        reply = await one.ask("wide")
        assert (reply.status, "retry-after" in {name.lower() for name in reply.headers}) == (503, False)
        assert str(tmp_path).encode() not in reply.body

        write_adapter(tmp_path / "wide", rank=8)
        await one.daemon.reload()
        await one.until_says("wide", "as wide")


async def test_an_adapter_that_was_never_fetched_is_missing_until_it_is(tmp_path: Path) -> None:
    async with node(tmp_path, {"a": tmp_path / "a"}) as one:
        assert await one.says("a") == "adapter_missing"
        write_adapter(tmp_path / "a")
        await one.until_says("a", "as a")


async def test_where_none_is_idle_the_next_one_waits_and_is_turned_away_in_time(tmp_path: Path) -> None:
    adapters = {name: write_adapter(tmp_path / name) for name in ("a", "b")}
    async with node(tmp_path, adapters, f"maxLoadedAdapters: 1, queueTimeoutMs: {PATIENCE_S * 2000:.0f}") as one:
        assert await one.says("a") == "as a"
        (one.home / "hold").touch()
        long = asyncio.create_task(one.says("a"))
        await one.until_runtime(lambda runtime: runtime.active_requests == 1)
        refused = await one.ask("b")
        assert (refused.status, json.loads(refused.body)["error"]["code"]) == (429, "adapter_busy")
        assert int({name.lower(): value for name, value in refused.headers.items()}["retry-after"]) > 0
        (one.home / "hold").unlink()
        assert await long == "as a", "what was under way has lost nothing"
        await one.until_says("b", "as b")


async def test_who_leaves_wants_the_adapter_no_longer(tmp_path: Path) -> None:
    adapters = {name: write_adapter(tmp_path / name) for name in ("a", "b", "c")}
    async with node(tmp_path, adapters, "maxLoadedAdapters: 1") as one:
        assert await one.says("a") == "as a"
        (one.home / "hold").touch()
        long = asyncio.create_task(one.says("a"))
        await one.until_runtime(lambda runtime: runtime.active_requests == 1)
        async with HttpClient(base_url=f"http://127.0.0.1:{one.up.port}") as http:
            leaving = asyncio.create_task(one.says("b", http))
            await one.until_runtime(lambda runtime: runtime.queued_requests == 1)
            leaving.cancel()
            await asyncio.wait([leaving])
        await one.until_runtime(lambda runtime: runtime.queued_requests == 0)
        (one.home / "hold").unlink()
        assert await long == "as a"
        await one.until_says("c", "as c")
        assert "b" not in one.loads()


async def test_a_killed_engine_has_none_and_gets_them_again(tmp_path: Path) -> None:
    async with node(tmp_path, {"a": write_adapter(tmp_path / "a")}) as one:
        assert await one.says("a") == "as a"
        before = await one.until_runtime(lambda runtime: runtime.adapters == ["a"])
        os.kill(before.pid, signal.SIGKILL)
        await one.until_runtime(lambda runtime: runtime.pid not in (0, before.pid) and runtime.state == "running")
        await one.until_says("a", "as a")
        assert one.loads() == ["a", "a"]


async def test_a_killed_daemon_learns_from_the_engine_what_it_holds(tmp_path: Path) -> None:
    adapters = {name: write_adapter(tmp_path / name) for name in NAMES[:3]}
    async with node(tmp_path, adapters) as one:
        assert [await one.says(name) for name in ("a", "b")] == ["as a", "as b"]
        before = one.up.pids_with("daemon")
        os.kill(before[0], signal.SIGKILL)
        assert await one.says("a") == "as a", "the gateway needs no daemon for what is loaded"
        await one.until_says("c", "as c")
        assert one.up.pids_with("daemon") not in ([], before)
        events = one.events()
        assert [(event.did, event.adapter) for event in events][:2] == [("load", "a"), ("load", "b")]
        assert [(event.did, event.in_use) for event in events][2] == ("unload", 0)
        assert max(len(event.held) for event in events) == 2


async def test_a_further_adapter_is_served_by_the_engine_that_runs(tmp_path: Path) -> None:
    adapters = {name: write_adapter(tmp_path / name) for name in ("a", "b")}
    async with node(tmp_path, {"a": adapters["a"]}) as one:
        before = await one.until_runtime(lambda runtime: runtime.state == "running")
        text = one.layout.config.read_text()
        added = await one.run("model", "add", str(adapters["b"]), "--adapter-of", "base", "--json")
        assert json.loads(added) == {"applied": True, "model": "b", "runtime": "r", "adapter": str(adapters["b"])}
        await one.until_says("b", "as b")
        assert (await one.until_runtime(lambda runtime: runtime.adapters == ["b"])).pid == before.pid
        rewrite(one.layout.config, text)
        await one.daemon.reload()
        await one.until_says("b", "unknown_model")
