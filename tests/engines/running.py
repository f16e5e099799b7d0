"""Runs an engine as its adapter says, as a plain process: for tests that need the engine and not yet a unit."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from core.errors import LlmgwError
from core.http.client import HttpClient, Reply
from engines.adapter import KEY_FILE, Build, EngineSpec, Health, NodeFacts
from engines.kv_events import kv_events
from engines.registry import get_adapter

KEY = "sk-test-0123456789"
_POLL_S = 0.01
_READY_S = 60.0


@dataclass
class EngineClient:
    """How to speak to an engine that runs."""

    spec: EngineSpec
    client: HttpClient

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.spec.port}"

    async def ask(
        self, path: str, body: object = None, *, key: str = KEY, method: str = "", timeout_s: float = 30.0
    ) -> Reply:
        """One request; a body makes it a POST."""
        return await self.client.fetch(
            method or ("POST" if body is not None else "GET"),
            self.url + path,
            headers={"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
            body=json.dumps(body).encode() if body is not None else b"",
            timeout_s=timeout_s,
        )

    async def begin(self, path: str, body: object) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A request whose connection the test holds in its own hands."""
        data = json.dumps(body).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", self.spec.port)
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        await writer.drain()
        return reader, writer


@dataclass
class RunningEngine(EngineClient):
    """A started engine, its process and its log."""

    process: asyncio.subprocess.Process
    log: Path

    async def wait_health(self, wanted: Health, within_s: float = _READY_S) -> None:
        """Ask until the adapter reads `wanted`; a process that ends meanwhile is an error that shows its log."""
        adapter = get_adapter(self.spec.engine)
        probe = adapter.health_probe(self.spec)
        async with asyncio.timeout(within_s):
            while True:
                if self.process.returncode is not None:
                    raise AssertionError(f"the engine ended with {self.process.returncode}:\n{self.log.read_text()}")
                with contextlib.suppress(LlmgwError):
                    reply = await self.ask(probe.path.removeprefix(self.url), timeout_s=probe.timeout_s)
                    if adapter.read_health(reply.status, reply.body) is wanted:
                        return
                await asyncio.sleep(_POLL_S)  # there is no event to wait for: an engine is asked, it does not tell


@dataclass(frozen=True)
class ServedEngine:
    """A started engine that outlives the event loops of those who ask it."""

    spec: EngineSpec
    pid: int
    log: Path

    @contextlib.asynccontextmanager
    async def asked(self) -> AsyncIterator[EngineClient]:
        """A client of it in the running event loop."""
        async with HttpClient() as client:
            yield EngineClient(self.spec, client)


@contextlib.asynccontextmanager
async def running(
    spec: EngineSpec, tmp_path: Path, build: Build | None = None, *, wait: bool = True
) -> AsyncIterator[RunningEngine]:
    """The engine from its start to its end, on a port that the kernel chose."""
    spec = replace(spec, port=free_port(), home=tmp_path / "home")
    argv, environment = prepare(spec, tmp_path, build)
    log = tmp_path / "engine.log"
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *argv,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        async with HttpClient() as client:
            engine = RunningEngine(spec, client, process, log)
            if wait:
                await engine.wait_health(Health.READY)
            yield engine
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


@contextlib.contextmanager
def served(spec: EngineSpec, tmp_path: Path, build: Build, *, within_s: float) -> Iterator[ServedEngine]:
    """An engine that starts slowly and is shared by tests, each of which brings an event loop of its own."""
    spec = replace(spec, port=free_port(), home=tmp_path / "home", sockets=tmp_path / "s")
    argv, environment = prepare(spec, tmp_path, build)
    log = tmp_path / "engine.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            argv, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
    try:
        engine = ServedEngine(spec, process.pid, log)
        asyncio.run(_wait_served(engine, process, within_s))
        yield engine
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


async def _wait_served(engine: ServedEngine, process: "subprocess.Popen[bytes]", within_s: float) -> None:
    adapter = get_adapter(engine.spec.engine)
    async with asyncio.timeout(within_s), engine.asked() as client:
        while process.poll() is None:
            with contextlib.suppress(LlmgwError):
                reply = await client.ask(adapter.health_probe(engine.spec).path)
                if adapter.read_health(reply.status, reply.body) is Health.READY:
                    return
            await asyncio.sleep(0.1)  # an engine is asked, it does not tell
    raise AssertionError(f"the engine ended with {process.returncode}:\n{engine.log.read_text()[-5000:]}")


def prepare(spec: EngineSpec, tmp_path: Path, build: Build | None = None) -> tuple[list[str], dict[str, str]]:
    """The command line and environment, with the key's file written."""
    spec.home.mkdir(exist_ok=True)
    if kv_events(spec) is not None:
        spec.sockets.mkdir(mode=0o700, exist_ok=True)
    key_file = tmp_path / "key"
    key_file.write_text(KEY + "\n")
    command = get_adapter(spec.engine).build_command(spec, build, NodeFacts(cpu_count=2, memory_total_mib=4096))
    return [word.replace(KEY_FILE, str(key_file)) for word in command.argv], dict(command.environment)


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
