"""A whole node under `llmgw up`, as the processes a user has, for tests."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from core.http.client import AnswerTimedOut, HttpClient, Unreachable
from tests.integration.daemon.stack import ROOT, free_port, port_range

MODEL = "m"
_STEP_S = 0.05
VICTIMS: dict[str, Callable[["Up"], list[int]]] = {
    "supervisor": lambda up: up.pids_with("units.embedded"),
    "daemon": lambda up: up.pids_with("daemon"),
    "gateway master": lambda up: up.gateway_pids()[:1],
    "gateway worker": lambda up: up.gateway_pids()[1:2],
    "engine": lambda up: up.engine_pids(),
}


def one_model(options: str = "") -> str:
    """A pinned simulated model `m` with these engine options, behind two gateway workers."""
    low, high = port_range()
    return (
        f"server: {{port: {free_port()}, workers: 2}}\nports: {{backends: [{low}, {high}]}}\n"
        f"models: [{{id: {MODEL}, runtime: r}}]\n"
        f"runtimes: {{r: {{engine: sim, keepWarm: true, maxConcurrency: 4, options: {{{options}}}}}}}\n"
    )


class Up:
    """`llmgw up` on a state directory. `async with` it; nothing survives the block."""

    def __init__(self, state: Path, config: str) -> None:
        """`config` is the whole file; its `port: N` is where the gateway listens."""
        self.state = state
        (state / "config.yaml").write_text(config)
        self.port = int(config.partition("port: ")[2].partition(",")[0])
        self.http = HttpClient(base_url=f"http://127.0.0.1:{self.port}")
        self.process: subprocess.Popen[bytes] | None = None

    async def __aenter__(self) -> "Up":
        self.process = self._start()
        return self

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "cli", "--state", str(self.state), "up"]
        with open(self.state / "up.log", "wb") as log:
            return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)

    async def __aexit__(self, *_: object) -> None:
        await self.http.close()
        assert self.process is not None
        if self.process.poll() is None:
            self.process.terminate()
            try:
                await asyncio.to_thread(self.process.wait, 30)
            except subprocess.TimeoutExpired:
                self.process.kill()
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    # Processes

    def pids(self) -> list[int]:
        """Every process of this node but `up` itself: ours by their mark, engines and gates by their home."""
        homes = [os.fsencode(self.state / "lib" / name) for name in ("homes", "gates")]
        marks = (b"LLMGW_UP=" + os.fsencode(self.state) + b"\0", *homes)
        return [pid for pid in _all_pids() if any(mark in _read(pid, "environ") for mark in marks)]

    def pids_with(self, module: str) -> list[int]:
        """Those that run `python -m module`."""
        return [pid for pid in self.pids() if f"\0-m\0{module}\0".encode() in b"\0" + _read(pid, "cmdline")]

    def gateway_pids(self) -> list[int]:
        """The master first, then its workers."""
        found = [pid for pid in self.pids() if b"gunicorn" in _read(pid, "cmdline")]
        return sorted(found, key=lambda pid: (_parent(pid) in found, pid))

    def engine_pids(self) -> list[int]:
        return self.pids_with("engines.sim")

    # Requests

    async def chat(self) -> int:
        """Status of one short chat; 0 when nobody answered."""
        body = b'{"model":"m","messages":[{"role":"user","content":"hi"}],"sim":{"tokens":2}}'
        try:
            headers = {"Content-Type": "application/json"}
            reply = await self.http.fetch("POST", "/v1/chat/completions", headers=headers, body=body, timeout_s=5)
        except (Unreachable, AnswerTimedOut):
            return 0
        return reply.status

    async def until_gateway(self, bound_s: float) -> None:
        """Until the gateway has a route table."""
        async with asyncio.timeout(bound_s):
            while True:
                try:
                    if (await self.http.fetch("GET", "/health/ready", timeout_s=5)).status == 200:
                        return
                except (Unreachable, AnswerTimedOut):
                    pass
                await asyncio.sleep(_STEP_S)

    async def until_serving(self, bound_s: float) -> float:
        """Seconds until a chat was answered. Raises: AssertionError past the bound."""
        began = time.monotonic()
        status = 0
        while (took := time.monotonic() - began) < bound_s:
            status = await self.chat()
            if status == 200:
                return took
            await asyncio.sleep(_STEP_S)
        logs = "\n".join(f"--- {p.name}\n{p.read_text()[-2000:]}" for p in (self.state / "log").glob("*.log"))
        raise AssertionError(f"no answer within {bound_s} s; last status {status}\n{logs}")

    async def until(self, done: Callable[[], bool], bound_s: float) -> None:
        async with asyncio.timeout(bound_s):
            while not done():  # noqa: ASYNC110 - other processes come and go without an event for us
                await asyncio.sleep(_STEP_S)


def _all_pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _parent(pid: int) -> int:
    stat = _read(pid, "stat")
    return int(stat.rpartition(b")")[2].split()[1]) if stat else 0
