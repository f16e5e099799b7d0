"""The section `cluster` on a real daemon: which node it is, what its resources allow, and what has no effect yet."""

import json
from pathlib import Path

import pytest

from core.cluster import ClusterNodeState
from core.errors import UnavailableError
from tests.integration.daemon.stack import running


def here(**settings: object) -> str:
    """This machine as the one node of a cluster."""
    return f"cluster: {json.dumps({'nodes': {'spark-1': settings}})}\n"


RUNTIME = "runtimes: {r: {engine: sim, memoryGb: 0.5}}\n"


async def test_the_only_node_of_a_cluster_is_this_one(tmp_path: Path) -> None:
    async with running(tmp_path, here()) as stack:
        assert (await stack.client.state()).node == "spark-1"


@pytest.mark.parametrize("resources", [{"memoryBudgetGb": 0.25}, {"memoryGb": 0.25}])
async def test_what_a_node_has_goes_before_the_policy(tmp_path: Path, resources: dict[str, object]) -> None:
    policy = f"runtimePolicy: {{maxMemoryUtilization: 0.99, memorySafety: {{mode: 'off'}}}}\n{RUNTIME}"
    async with running(tmp_path, here(resources=resources) + policy) as stack:
        with pytest.raises(UnavailableError, match="the budget is") as caught:
            await stack.client.start_runtime("r")
        assert caught.value.code == "runtime_capacity_impossible"
        stack.write_config(policy)
        await stack.client.reload()
        assert (await stack.client.start_runtime("r")).state == "running"


async def test_what_has_no_effect_yet_is_told_with_the_state_and_by_the_doctor(tmp_path: Path) -> None:
    mac = {"endpoint": "http://mac.internal:8100", "proxy": {"models": ["local/qwen"]}}
    cluster = {"nodeId": "here", "nodes": {"here": {}, "mac": mac}}
    async with running(tmp_path, f"cluster: {json.dumps(cluster)}\nfirewall: {{enabled: false}}\n") as stack:
        (warning,) = (await stack.client.state()).config.warnings
        assert warning.startswith("cluster.nodes.mac.proxy.models: has no effect yet: 1 model of mac")
        findings = (await stack.client.doctor()).findings
        (found,) = [f for f in findings if f.check == "config" and f.status == "warning"]
        assert found.found in warning and found.remedy == "ask mac itself"


async def test_a_machine_that_gets_another_name_keeps_what_runs_on_it(tmp_path: Path) -> None:
    async with running(tmp_path, here() + RUNTIME) as stack:
        before = await stack.client.start_runtime("r")
        stack.write_config(here().replace("spark-1", "spark-2") + RUNTIME)
        await stack.client.reload()
        state = await stack.client.state()
        assert (state.node, state.runtimes[0].pid) == ("spark-2", before.pid)
        assert (await stack.client.stop_runtime("r")).state == "stopped"


async def test_the_state_tells_the_cluster_and_neither_keys_nor_engines_addresses(tmp_path: Path) -> None:
    nodes = {
        "here": {"labels": {"role": "worker"}, "resources": {"memoryGb": 64}},
        "b": {
            "endpoint": "http://10.0.0.2:8100",
            "backendHost": "10.9.0.2",
            "apiKey": "s3cr3t",
            "apiKeyEnv": "KEY_OF_B",
        },
    }
    section = {"id": "lab", "nodeId": "here", "leaderNode": "b", "nodes": nodes}
    async with running(tmp_path, f"cluster: {json.dumps(section)}\n") as stack:
        cluster = (await stack.client.state()).cluster
        assert cluster is not None
        assert (cluster.id, cluster.node_id, cluster.leader_node) == ("lab", "here", "b")
        assert cluster.nodes == [
            ClusterNodeState(id="here", local=True, labels={"role": "worker"}, resources={"memoryGb": 64.0}),
            ClusterNodeState(id="b", endpoint="http://10.0.0.2:8100"),
        ]
