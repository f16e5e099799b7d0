"""The whole chain: a client, the gateway, the gate's unit and ComfyUI's unit under the embedded supervisor."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from core.api import RuntimeStatus
from core.client import DaemonClient
from core.http.client import Reply
from core.paths import Layout
from tests.integration.daemon.stack import free_port, port_range
from tests.integration.gates.bench import FAKE, long_picture, picture
from tests.integration.node.up import Up

KEYS = {"ada": "sk-ada-0123456789", "bob": "sk-bob-0123456789"}
_PATIENCE_S = 60.0


def config(tree: Path, more: str = "") -> str:
    """A model `art` of ComfyUI, and two keys."""
    low, high = port_range()
    shutil.copy(FAKE, tree / "main.py")
    return (
        f"server: {{port: {free_port()}, workers: 2}}\nports: {{backends: [{low}, {high}]}}\n"
        f"security: {{apiKeys: [{', '.join(KEYS.values())}], allowMissingAuth: false}}\n"
        f"engines: {{comfyui: {{dir: {tree}, python: {sys.executable}}}}}\n"
        "models: [{id: org/art, kind: image, runtime: art}]\naliases: {painter: org/art}\n"
        f"runtimes: {{art: {{engine: comfyui, memoryGb: 0.4, gpus: 0, requestStartupWaitMs: 60000{more}}}}}\n"
    )


class Client:
    """Somebody with a key."""

    def __init__(self, up: Up, name: str) -> None:
        self._up = up
        self._key = KEYS[name]

    async def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json", **headers}
        data = json.dumps(body).encode() if body is not None else b""
        reply: Reply = await self._up.http.fetch(method, path, headers=headers, body=data, timeout_s=_PATIENCE_S)
        is_json = reply.headers.get("Content-Type", "").startswith("application/json")
        return reply.status, json.loads(reply.body) if is_json else reply.body

    async def until(self, path: str, holds: Callable[[Any], bool]) -> Any:
        told: Any = None
        try:
            async with asyncio.timeout(_PATIENCE_S):
                while True:
                    status, told = await self.ask("GET", path)
                    if status == 200 and holds(told):
                        return told
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"never happened: {told}") from None


@contextlib.asynccontextmanager
async def serving(state: Path, more: str = "") -> AsyncIterator[tuple[Up, DaemonClient]]:
    tree = state / "comfyui"
    tree.mkdir()
    async with Up(state, config(tree, more)) as up, DaemonClient(Layout.under(state).daemon_socket) as daemon:
        await up.until_gateway(_PATIENCE_S)
        yield up, daemon


async def runtime(daemon: DaemonClient) -> RuntimeStatus:
    (status,) = (await daemon.state()).runtimes
    return status


async def test_from_the_client_to_comfyui_and_back(tmp_path: Path) -> None:
    async with serving(tmp_path, ", options: {callerFilesMib: 64, freeMib: 1}") as (up, daemon):
        ada, bob = Client(up, "ada"), Client(up, "bob")
        status, told = await ada.ask("POST", "/v1/workflows", {"model": "org/art", "prompt": picture()})
        assert (status, told.get("status"), told.get("model")) == (200, "done", "org/art"), told
        (file,) = told["files"]
        query = "&".join(f"{key}={file[key]}" for key in ("filename", "subfolder", "type"))
        for base in ("/v1/comfyui/org/art", "/v1/comfyui/painter"):
            assert (await ada.ask("GET", f"{base}/view?{query}"))[1] == b"\x89PNG\r\n\x1a\nfake"
            assert (await bob.ask("GET", f"{base}/view?{query}"))[0] == 404
            assert (await bob.ask("GET", f"{base}/history"))[1] == {}
            assert list((await ada.ask("GET", f"{base}/history"))[1]) == [told["id"]]

        assert (await bob.ask("GET", "/v1/comfyui/org/art/files"))[1]["count"] == 0
        kept = (await ada.ask("GET", "/v1/comfyui/org/art/files"))[1]
        assert (kept["count"], kept["limit_bytes"]) == (1, 64 << 20)

        # Nobody becomes another by saying so, and the gate's own paths are no way round.
        forged = {"x-llmgw-caller": file["subfolder"], "x-llmgw-handle": "x"}
        assert (await bob.ask("GET", f"/v1/comfyui/org/art/view?{query}", **forged))[0] == 404
        for path in ("free", "userdata", "api/manager/reboot", "%2e%2e/v1/models", "system_stats", "", "/"):
            assert (await ada.ask("POST", f"/v1/comfyui/org/art/{path}", {}))[0] in (400, 404, 405), path
        assert (await ada.ask("GET", "/v1/comfyui/nobody/queue"))[0] == 404
        reply = await up.http.fetch("GET", "/v1/comfyui/org/art/queue", timeout_s=10)
        assert reply.status == 401

        assert (await bob.ask("DELETE", f"/v1/comfyui/org/art/view?{query}"))[0] == 404
        assert (await ada.ask("DELETE", f"/v1/comfyui/org/art/view?{query}"))[0] == 204
        assert (await ada.ask("GET", "/v1/comfyui/org/art/files"))[1]["count"] == 0

        # By its alias, a workflow is asked and answered under the alias.
        status, told = await bob.ask("POST", "/v1/workflows", {"model": "painter", "prompt": picture()})
        assert (status, told["model"]) == (200, "painter")
        assert told["files"][0]["subfolder"] != file["subfolder"]
        # Its key stands in no argument and no unit.
        key = (Layout.under(tmp_path).keys / "art.key").read_text().strip()
        units = "".join(path.read_text() for path in Layout.under(tmp_path).units.glob("*.service"))
        lines = b"".join(Path(f"/proc/{pid}/cmdline").read_bytes() for pid in up.pids())
        assert key not in units and key.encode() not in lines and "llmgw-gate-art.service" in units


async def test_a_workflow_is_followed_by_its_request_id_and_ends_with_its_client(tmp_path: Path) -> None:
    async with serving(tmp_path) as (up, _):
        ada = Client(up, "ada")
        body = {"model": "org/art", "prompt": long_picture(tmp_path / "never")}
        asking = asyncio.create_task(ada.ask("POST", "/v1/workflows", body, **{"x-request-id": "job-7"}))
        progress = "/v1/comfyui/org/art/progress/job-7"
        told = await ada.until(progress, lambda told: told["step"] == 1)
        assert told["state"] == "running"
        asking.cancel()
        await ada.until(progress, lambda told: told["state"] == "cancelled")


async def test_a_job_tells_how_far_its_workflow_is_and_whose_it_is(tmp_path: Path) -> None:
    hold = tmp_path / "go"
    async with serving(tmp_path) as (up, _):
        ada, bob = Client(up, "ada"), Client(up, "bob")
        wanted = {"path": "/v1/workflows", "body": {"model": "org/art", "prompt": long_picture(hold)}}
        status, job = await ada.ask("POST", "/v1/jobs", wanted)
        assert status == 202, job
        path = f"/v1/jobs/{job['id']}"
        told = await ada.until(path, lambda told: told["step"] == "Sampler 1/4")
        assert (told["state"], told["percent"]) == ("running", 41.7)
        assert (await bob.ask("GET", f"/v1/comfyui/org/art/progress/{job['id']}"))[0] == 404
        hold.touch()
        told = await ada.until(path, lambda told: told["state"] == "done")
        assert told["result"]["files"][0]["filename"] == "slow_00001_.png"
        query = "&".join(f"{k}={told['result']['files'][0][k]}" for k in ("filename", "subfolder", "type"))
        assert (await ada.ask("GET", f"/v1/comfyui/org/art/view?{query}"))[0] == 200

        status, job = await ada.ask("POST", "/v1/jobs", wanted | {"body": {"model": "org/art", "prompt": picture()}})
        waits = {"path": "/v1/workflows", "body": {"model": "org/art", "prompt": long_picture(tmp_path / "never")}}
        status, job = await ada.ask("POST", "/v1/jobs", waits)
        await ada.until(f"/v1/jobs/{job['id']}", lambda told: told["step"] == "Sampler 1/4")
        assert (await ada.ask("DELETE", f"/v1/jobs/{job['id']}"))[0] == 200
        progress = f"/v1/comfyui/org/art/progress/{job['id']}"
        await ada.until(progress, lambda told: told["state"] == "cancelled")


async def test_a_prompt_that_nobody_waits_for_keeps_the_runtime_from_being_stopped(tmp_path: Path) -> None:
    hold = tmp_path / "go"
    async with serving(tmp_path, ", idleStopMs: 1500") as (up, daemon):
        ada = Client(up, "ada")
        status, told = await ada.ask("POST", "/v1/comfyui/org/art/prompt", {"prompt": long_picture(hold)})
        assert status == 200, told
        before = await runtime(daemon)
        stops = asyncio.create_task(_until_stopped(daemon))
        await asyncio.wait({stops}, timeout=6.0)
        assert not stops.done() and (await runtime(daemon)).pid == before.pid
        hold.touch()
        async with asyncio.timeout(_PATIENCE_S):
            await stops
        assert (await runtime(daemon)).reason == "idle"


async def test_gate_and_engine_come_back_and_leave_together(tmp_path: Path) -> None:
    async with serving(tmp_path, ", keepWarm: true") as (up, daemon):
        ada = Client(up, "ada")
        await ada.until("/v1/comfyui/org/art/queue", lambda told: "queue_running" in told)
        engine = await runtime(daemon)
        assert engine.gate is not None
        assert (engine.gate.unit, engine.gate.state) == ("llmgw-gate-art.service", "active")
        assert engine.gate.port == engine.port != engine.gate.engine_port > 0
        (gate,) = up.pids_with("engines.gates")
        os.kill(gate, signal.SIGKILL)
        await up.until(lambda: up.pids_with("engines.gates") not in ([], [gate]), _PATIENCE_S)
        await ada.until("/v1/comfyui/org/art/queue", lambda told: "queue_running" in told)
        assert (await runtime(daemon)).pid == engine.pid

        (gate,) = up.pids_with("engines.gates")
        os.kill(engine.pid, signal.SIGKILL)
        await up.until(lambda: up.pids_with("engines.gates") not in ([], [gate]), _PATIENCE_S)
        status, told = await ada.ask("POST", "/v1/workflows", {"model": "org/art", "prompt": picture()})
        assert status == 200, told
        await daemon.stop_runtime("art")
        assert up.pids_with("engines.gates") == []
        stopped = await runtime(daemon)
        assert (stopped.state, stopped.gate) == ("stopped", None)


async def _until_stopped(daemon: DaemonClient) -> None:
    while (await runtime(daemon)).state != "stopped":  # noqa: ASYNC110 - another process, without an event for us
        await asyncio.sleep(0.1)
