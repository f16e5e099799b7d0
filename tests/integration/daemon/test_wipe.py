"""`llmgw wipe` on a running node."""

from pathlib import Path

import pytest

from core.errors import ConflictError
from core.wipe import WipeRequest
from tests.integration.daemon.stack import running

SIM = "runtimes:\n  sim: {engine: sim, keepWarm: true}\n"


async def test_a_wipe_stops_and_removes_what_it_listed_and_nothing_else(tmp_path: Path) -> None:
    async with running(tmp_path, SIM) as stack:
        await stack.until_runtime("sim", "running")
        weights = stack.layout.weights / "package" / "x"
        weights.mkdir(parents=True)
        plan = await stack.client.plan_wipe(models=False, everything=False)
        assert plan.stops == ["sim"]
        assert {Path(item.path).name for item in plan.items} == {"homes", "keys"}
        done = await stack.client.wipe(WipeRequest(confirm=plan.node))
        assert done.items and stack.engine_pids() == []
        assert not stack.layout.homes.exists() and not stack.layout.keys.exists()
        assert weights.exists() and stack.layout.config.exists()
        await stack.client.set_serving(True)
        await stack.until_runtime("sim", "running")


async def test_models_and_all_take_more(tmp_path: Path) -> None:
    async with running(tmp_path, SIM) as stack:
        for folder in ("package", "https", "hf", "an operators own"):
            (stack.layout.weights / folder).mkdir(parents=True)
        models = await stack.client.plan_wipe(models=True, everything=False)
        everything = await stack.client.plan_wipe(models=False, everything=True)
        fetched = {item.path for item in models.items if item.path.startswith(str(stack.layout.weights))}
        assert fetched == {str(stack.layout.weights / folder) for folder in ("package", "https", "hf")}
        assert any(item.path == str(stack.layout.config) for item in everything.items)


async def test_our_keys_for_others_go_with_the_config(tmp_path: Path) -> None:
    backend = 'backends: {b: {baseUrl: "https://api.example.org/v1", apiKey: sk-1}}\n'
    async with running(tmp_path, SIM + backend) as stack:
        await stack.until_runtime("sim", "running")
        assert len(list(stack.layout.backend_keys.iterdir())) == 1
        plan = await stack.client.plan_wipe(models=False, everything=False)
        assert stack.layout.backend_keys not in [Path(item.path) for item in plan.items]
        await stack.client.wipe(WipeRequest(confirm=plan.node, all=True))
        assert not stack.layout.backend_keys.exists()


async def test_a_wrong_name_removes_nothing(tmp_path: Path) -> None:
    async with running(tmp_path, SIM) as stack:
        before = await stack.until_runtime("sim", "running")
        with pytest.raises(ConflictError, match="not 'yes'"):
            await stack.client.wipe(WipeRequest(confirm="yes", all=True))
        assert (await stack.until_runtime("sim", "running")).pid == before.pid
