"""trtllm-serve behind the generic gate, and a gate that cannot run, as the daemon sees them."""

import sys
from pathlib import Path

import pytest

from core.errors import DependencyError
from core.http.client import HttpClient
from tests.integration.daemon.stack import ROOT, Stack, running
from tests.integration.gates.bench import FAKE


def own_environment(folder: Path, program: str, fake: Path) -> Path:
    """An environment as an operator has it: a python, and the engine's program beside it."""
    bin_folder = folder / "bin"
    bin_folder.mkdir(parents=True)
    python = bin_folder / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (bin_folder / program).write_text(f'#!/bin/sh\nexec {sys.executable} {fake} "$@"\n')
    (bin_folder / program).chmod(0o755)
    return python


async def test_trtllm_is_asked_through_a_gate_that_demands_the_runtimes_key(tmp_path: Path) -> None:
    python = own_environment(tmp_path / "trt", "trtllm-serve", ROOT / "tests/fakes/trtllm_serve.py")
    weights = tmp_path / "weights"
    weights.mkdir()
    config = (
        f"engines: {{trtllm: {{python: {python}}}}}\nmodels: [{{id: big, runtime: big}}]\n"
        f"runtimes: {{big: {{engine: trtllm, weights: {weights}, memoryGb: 0.2, gpus: 0, keepWarm: true,"
        " warmup: true}}\n"
    )
    async with running(tmp_path, config) as stack:
        runtime = await stack.until_runtime("big", "running")
        key = (stack.layout.keys / "big.key").read_text().strip()
        async with HttpClient(base_url=f"http://127.0.0.1:{runtime.port}") as http:
            for path, given, status in (
                ("/v1/chat/completions", key, 200), ("/v1/chat/completions", "wrong", 401),
                ("/v1/load_weights", key, 404), ("/v1/load_weights", "wrong", 401),
            ):  # fmt: skip
                headers = {"Authorization": f"Bearer {given}", "Content-Type": "application/json"}
                reply = await http.fetch("POST", path, headers=headers, body=b'{"model":"big"}', timeout_s=10)
                assert reply.status == status, (path, reply.body)
                assert key.encode() not in reply.body
        engine_text = (stack.layout.units / "llmgw-engine-big.service").read_text()
        assert "LoadCredential" not in engine_text and "Upholds=llmgw-gate-big.service" in engine_text


async def test_a_gate_that_does_not_stay_up_fails_its_runtime_with_its_own_words(tmp_path: Path) -> None:
    async with comfyui(tmp_path) as stack:
        (stack.layout.gates / "art" / "ledger.jsonl").mkdir(parents=True)
        with pytest.raises(DependencyError, match="the gate of art"):
            await stack.client.start_runtime("art")
        failed = await stack.until_runtime("art", "failed")
        assert any("storage_failed" in line for line in failed.log)
        assert stack.engine_pids() == []
        (stack.layout.gates / "art" / "ledger.jsonl").rmdir()
        assert (await stack.client.start_runtime("art")).state == "running"


async def test_a_new_daemon_adopts_engine_and_gate_and_removes_a_stray_one(tmp_path: Path) -> None:
    async with comfyui(tmp_path) as stack:
        before = await stack.client.start_runtime("art")
        stack.kill(stack.daemon)
        gate = stack.layout.units / "llmgw-gate-art.service"
        stray = stack.layout.units / "llmgw-gate-gone.service"
        stray.write_text(gate.read_text().replace("RuntimeId=art", "RuntimeId=gone"))
        stack.start_daemon()
        after = await stack.until_runtime("art", "running")
        assert (after.pid, after.port, after.reason) == (before.pid, before.port, "adopted")
        assert gate.is_file() and not stray.exists()


async def test_a_runtime_that_changes_its_engine_loses_its_gate(tmp_path: Path) -> None:
    async with comfyui(tmp_path) as stack:
        await stack.client.start_runtime("art")
        gate = stack.layout.units / "llmgw-gate-art.service"
        assert gate.is_file()
        stack.write_config("runtimes: {art: {engine: sim, keepWarm: true}}")
        await stack.client.reload()
        await stack.until(lambda s: s.runtimes[0].engine == "sim" and s.runtimes[0].state == "running")
        assert not gate.exists() and len(stack.engine_pids()) == 1


def comfyui(folder: Path) -> Stack:
    tree = folder / "comfyui"
    tree.mkdir()
    (tree / "main.py").write_bytes(FAKE.read_bytes())
    return Stack(
        folder,
        f"engines: {{comfyui: {{dir: {tree}, python: {sys.executable}}}}}\n"
        "runtimes: {art: {engine: comfyui, memoryGb: 0.3, gpus: 0}}\n",
    )
