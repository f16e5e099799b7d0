"""The section `cluster`: LLooM's files load as they are, every problem names node and field, and no key is repeated."""

import json
from pathlib import Path

import pytest

from core.config.cluster import Cluster, ClusterNode, local_node, peer_hosts
from core.config.cluster_check import check_cluster
from core.config.idle import find_idle
from core.config.load import Loaded, parse_config
from core.config.problem import ConfigErrors

PATH = Path("config.yaml")
VARIABLES = {
    "LLMGW_GATEWAY_HOST": "10.10.10.1",
    "LLMGW_API_KEY": "a",
    "LLMGW_CLUSTER_KEY": "b",
    "LLMGW_NODE_ID": "spark-1",
    "LLOOM_NODE_ID": "spark-2",
}

EXAMPLE = """
server: {host: "${LLMGW_GATEWAY_HOST}", port: 8100}
security:
  allowMissingAuth: false
  allowNonLoopbackBind: true
  allowRemoteAdmin: true
  apiKeys: ["${LLMGW_API_KEY}"]
  adminApiKeys: ["${LLMGW_CLUSTER_KEY}"]
cluster:
  id: spark-cluster
  nodeId: "${LLMGW_NODE_ID}"
  leaderNode: spark-1
  apiKeyEnv: LLMGW_CLUSTER_KEY
  nodes:
    spark-1: {endpoint: "http://10.10.10.1:8100", backendHost: 10.10.10.1, fabricInterface: enp1s0f0,
              fabricHca: "mlx5_0,mlx5_1", labels: {hardware: dgx-spark},
              resources: {memoryGb: 128, maxMemoryUtilization: 0.9}}
    mac:
      endpoint: "http://mac.internal:8100"
      proxy: {models: [{id: local/qwen, as: mac/local/qwen, kind: chat, remoteRuntime: qwen, weight: 1}]}
"""

WRITTEN_FOR_LLOOM = {
    "cluster": {
        "id": "lab",
        "nodeId": "${LLOOM_NODE_ID}",
        "leaderNode": "spark-1",
        "fleetHeadNode": "spark-1",
        "apiKeyEnv": "LLOOM_CLUSTER_KEY",
        "statusCacheMs": 1000,
        "routingStatusCacheMs": 250,
        "targetFailureCooldownMs": 5000,
        "discovery": {
            "provider": "nvidia-sync",
            "evidence": "local-interface-and-ssh-config",
            "verified": False,
            "topology": "direct",
            "nodes": {"spark-3": {"rails": []}},
            "links": [{"nodeId": "spark-1", "peerNodeId": "spark-2", "prefixlen": 24}],
        },
        "nodes": {
            "spark-1": {
                "name": "first",
                "endpoint": "http://10.10.10.1:8100",
                "backendHost": "10.100.16.1",
                "backendProtocol": "http",
                "fabricInterface": "enp1s0f0np0",
                "fabricHca": "rocep1s0f0,roceP2p1s0f0",
                "fabricAddress": "10.100.16.1",
                "rails": [{"interface": "enp1s0f0np0", "localAddress": "10.100.16.2", "prefixlen": 24}],
                "sshAlias": "spark-1-lan",
                "apiKeyEnv": "SPARK_1_KEY",
                "labels": {"role": "leader", "hardware": "dgx-spark"},
                "resources": {
                    "memoryGb": 128,
                    "availableMemoryGb": 100.5,
                    "reserveMemoryGb": 12,
                    "memoryBudgetGb": 110,
                    "maxMemoryUtilization": 0.9,
                    "accelerators": ["cuda", "gb10"],
                },
                "proxy": {
                    "enabled": True,
                    "baseUrl": "http://10.10.10.1:8100/v1",
                    "backend": "lloom-node-spark-1",
                    "namespace": False,
                    "timeoutMs": 1800000,
                    "models": [
                        "local/plain",
                        {"model": "local/older", "as": "x", "targetId": "t", "capabilities": ["tools"]},
                        {"id": "local/speech", "kind": "audio_speech", "input": ["text"], "contextWindow": 4096},
                    ],
                },
            },
            "spark-2": {"backendHost": "10.100.16.2"},
        },
    }
}


def load(cluster: object, **variables: str) -> Loaded:
    return parse_config(json.dumps({"cluster": cluster}).encode(), PATH, variables)


def problems(cluster: object, **variables: str) -> list[str]:
    with pytest.raises(ConfigErrors) as caught:
        load(cluster, **variables)
    return [str(problem) for problem in caught.value.problems]


def test_the_example_of_a_cluster_loads_as_it_is() -> None:
    cluster = parse_config(EXAMPLE.encode(), PATH, VARIABLES).config.cluster
    assert (cluster.id, local_node(cluster, "host"), cluster.leader_node) == ("spark-cluster", "spark-1", "spark-1")
    assert cluster.nodes["spark-1"].resources.max_memory_utilization == 0.9
    assert cluster.nodes["spark-1"].labels == {"hardware": "dgx-spark"}
    (proxied,) = cluster.nodes["mac"].proxy.models
    assert not isinstance(proxied, str) and (proxied.id, proxied.alias) == ("local/qwen", "mac/local/qwen")


def test_a_json_file_written_for_lloom_loads_as_it_is() -> None:
    cluster = parse_config(json.dumps(WRITTEN_FOR_LLOOM).encode(), PATH, VARIABLES).config.cluster
    assert local_node(cluster, "host") == "spark-2"
    assert cluster.nodes["spark-1"].resources.accelerators == ["cuda", "gb10"]
    assert len(cluster.nodes["spark-1"].proxy.models) == 3
    assert cluster.discovery["provider"] == "nvidia-sync"


NODES = {"a": {"endpoint": "http://10.0.0.1:8100"}, "b": {"endpoint": "http://10.0.0.2:8100"}}


@pytest.mark.parametrize(
    ("node_id", "nodes", "host_name", "expected"),
    [
        ("", {}, "host", "host"),
        ("named", {}, "host", "named"),
        ("", {"only": {}}, "host", "only"),
        ("", {"a": {}, "b": {}}, "b", "b"),
        ("a", {"a": {}, "b": {}}, "b", "a"),
    ],
)
def test_which_node_this_machine_is(node_id: str, nodes: dict[str, object], host_name: str, expected: str) -> None:
    cluster = Cluster(node_id=node_id, nodes={name: ClusterNode() for name in nodes})
    assert local_node(cluster, host_name) == expected


def one(**settings: object) -> dict[str, object]:
    """A cluster in which node `b`, which is not this one, has these settings."""
    return {"nodeId": "a", "nodes": {**NODES, "b": {**NODES["b"], **settings}}}


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        ({"nodeId": "c", "nodes": NODES}, "cluster.nodeId: there is no node c (cluster.nodes has a, b)"),
        ({"nodeId": "spark1", "nodes": {"spark-1": {}}}, "cluster.nodeId: there is no node spark1; did you mean"),
        ({"nodeId": "a", "leaderNode": "c", "nodes": NODES}, "cluster.leaderNode: there is no node c"),
        ({"nodeId": "a", "nodes": {"a": {}, "b": {}}}, "cluster.nodes.b.endpoint: is missing: b is another machine"),
        ({"nodeId": "a", "nodes": {"a": {}, "b": None}}, "cluster.nodes.b.endpoint: is missing: b is another machine"),
        ({"nodeId": "a", "nodes": {"a": {}, "b c": NODES["b"]}}, "cluster.nodes.b c: is no node id"),
        ({"nodeId": "a", "nodes": {"a": {}, "../b": NODES["b"]}}, "cluster.nodes.../b: is no node id"),
        ({"nodes": ["a"]}, "cluster.nodes: expected object, found array"),
        ({"nodes": {"a": 3}}, "cluster.nodes.a: expected settings, found a number"),
        ({"id": ""}, "cluster.id: expected str of length >= 1"),
        (one(endpoint="http://10.0.0.1:8100/"), "cluster.nodes.b.endpoint: is also that of a"),
        (one(endpoint="HTTP://10.0.0.1:8100"), "cluster.nodes.b.endpoint: is also that of a"),
        (one(endpoint="ftp://10.0.0.2"), "cluster.nodes.b.endpoint: is no URL of a gateway (as in"),
        (one(endpoint="10.0.0.2:8100"), "cluster.nodes.b.endpoint: is no URL of a gateway"),
        (one(endpoint="http://"), "cluster.nodes.b.endpoint: is no URL of a gateway"),
        (one(endpoint="http://10.0.0.2:0"), "cluster.nodes.b.endpoint: is no URL of a gateway"),
        (one(endpoint="http://10.0.0.2:99999"), "cluster.nodes.b.endpoint: is no URL of a gateway"),
        (one(endpoint="http://10.0.0.256:8100"), "cluster.nodes.b.endpoint: is no URL of a gateway"),
        (one(endpoint="http://[fd00::zz]:8100"), "cluster.nodes.b.endpoint: is no URL of a gateway"),
        (one(endpoint="http://0.0.0.0:8100"), "cluster.nodes.b.endpoint: is no URL of a gateway"),
        (one(endpoint="http://b .internal"), "cluster.nodes.b.endpoint: is no URL of a gateway"),
        (one(endpoint="http://b.internal\n"), "cluster.nodes.b.endpoint: is no URL of a gateway"),
        (one(endpoint="http://b.internal?x=1"), "cluster.nodes.b.endpoint: has a query or a fragment"),
        (one(endpoint="http://b.internal#x"), "cluster.nodes.b.endpoint: has a query or a fragment"),
        (one(backendHost="http://10.0.0.2"), "cluster.nodes.b.backendHost: is neither an address nor the name"),
        (one(backendHost="10.0.0.2:8201"), "cluster.nodes.b.backendHost: is neither an address nor the name"),
        (one(backendHost="10.0.0.0/24"), "cluster.nodes.b.backendHost: is neither an address nor the name"),
        (one(backendHost="224.0.0.1"), "cluster.nodes.b.backendHost: is neither an address nor the name"),
        (one(backendHost="::"), "cluster.nodes.b.backendHost: is neither an address nor the name"),
        (one(backendHost="x" * 64), "cluster.nodes.b.backendHost: is neither an address nor the name"),
        (one(fabricHca="mlx5_0, mlx5_1"), "cluster.nodes.b.fabricHca: ' mlx5_1' is no RDMA device"),
        (one(fabricHca="mlx5_0:1"), "cluster.nodes.b.fabricHca: 'mlx5_0:1' is no RDMA device"),
        (one(fabricHca="mlx5_0,"), "cluster.nodes.b.fabricHca: '' is no RDMA device"),
        (one(fabricHca="mlx5_0,mlx5_0"), "cluster.nodes.b.fabricHca: names a device twice"),
        (one(fabricInterface="en p1"), "cluster.nodes.b.fabricInterface: 'en p1' is no name of a network interface"),
        (one(endpont="x"), "cluster.nodes.b.endpont: unknown key (did you mean endpoint?)"),
        (one(resources={"memoryGB": 1}), "cluster.nodes.b.resources.memoryGB: unknown key (did you mean memoryGb?)"),
        (one(resources={"memoryGb": 0}), "cluster.nodes.b.resources.memoryGb: expected float > 0"),
        (one(resources={"maxMemoryUtilization": 1.5}), "cluster.nodes.b.resources.maxMemoryUtilization: expected"),
        (one(labels={"a": ["b"]}), "cluster.nodes.b.labels[…]: expected"),
        (one(proxy={"models": {}}), "cluster.nodes.b.proxy.models: expected array, found object"),
        (one(proxy={"models": [{"as": "x"}]}), "cluster.nodes.b.proxy.models[0].id: is missing"),
        (one(proxy={"models": [{"id": "x"}, {"id": ""}]}), "cluster.nodes.b.proxy.models[1].id: expected"),
        (one(proxy={"models": [{"id": "x", "wieght": 2}]}), "cluster.nodes.b.proxy.models[0].wieght: unknown key (did"),
        (one(proxy={"models": [{"id": "x", "weight": 0}]}), "cluster.nodes.b.proxy.models[0].weight: expected int"),
        (one(proxy={"models": [""]}), "cluster.nodes.b.proxy.models[0]: is empty"),
        (one(proxy={"models": [3]}), "cluster.nodes.b.proxy.models[0]: expected"),
        (one(proxy={"namespace": True}), "cluster.nodes.b.proxy.namespace: is true"),
        (one(proxy={"baseUrl": "b"}), "cluster.nodes.b.proxy.baseUrl: is no URL of a gateway"),
    ],
)  # fmt: skip
def test_a_wrong_cluster_says_which_node_and_which_field(cluster: object, expected: str) -> None:
    assert any(problem.startswith(expected) for problem in problems(cluster)), problems(cluster)


def test_two_nodes_at_one_backend_host_are_refused_however_it_is_spelt() -> None:
    nodes = {"a": {**NODES["a"], "backendHost": "FD00::1"}, "b": {**NODES["b"], "backendHost": "[fd00:0::1]"}}
    assert problems({"nodeId": "a", "nodes": nodes}) == ["cluster.nodes.b.backendHost: is also that of a"]


def test_a_machine_that_is_none_of_the_nodes_by_its_host_name_is_told_so() -> None:
    cluster = Cluster(nodes={name: ClusterNode(endpoint=node["endpoint"]) for name, node in NODES.items()})
    (problem,) = check_cluster(cluster, "gpu-9")
    assert str(problem) == (
        "cluster.nodeId: is not set, and by its host name this machine is gpu-9: there is no node gpu-9 "
        "(cluster.nodes has a, b)"
    )
    assert list(check_cluster(cluster, "b")) == []


@pytest.mark.parametrize(
    "key",
    [
        "sk-llmgw-4f7a9c0d1e2b3a4c5d6e7f80",
        "sk_live_51HxYzAbCdEfGhIjKlMnOp",
        "hf_abcdefghijklmnopqrstuvwxyz",
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "Zm9vYmFyYmF6MTIzNDU2Nzg5MA0",
        "a key with spaces",
        "${CLUSTER_KEY}",
    ],
)
@pytest.mark.parametrize("place", ["cluster", "node"])
def test_a_key_where_the_name_of_a_variable_belongs_is_refused_and_never_repeated(key: str, place: str) -> None:
    cluster = {**one(), "apiKeyEnv": key} if place == "cluster" else one(apiKeyEnv=key)
    path = "cluster.apiKeyEnv" if place == "cluster" else "cluster.nodes.b.apiKeyEnv"
    (problem,) = problems(cluster, CLUSTER_KEY="s3cr3t of 1 cluster")
    assert problem.startswith(f"{path}: is not the name of a variable") and "without ${}" in problem
    assert key not in problem and "s3cr3t" not in problem


@pytest.mark.parametrize("name", ["LLMGW_CLUSTER_KEY", "KEY1", "_k", "hf_token", "my_cluster_key_for_node_1", "A" * 60])
def test_names_of_variables_are_names(name: str) -> None:
    assert load({**one(apiKeyEnv=name), "apiKeyEnv": name}).config.cluster.api_key_env == name


@pytest.mark.parametrize("key", ["endpoint", "proxy"])
def test_credentials_in_a_url_are_refused_and_never_repeated(key: str) -> None:
    url = "http://ada:hunter2@10.0.0.2:8100"
    (problem,) = problems(one(endpoint=url) if key == "endpoint" else one(proxy={"baseUrl": url}))
    assert "has credentials in it" in problem and "hunter2" not in problem and "ada" not in problem


def test_a_node_that_is_switched_off_needs_no_endpoint() -> None:
    cluster = load({"nodeId": "a", "nodes": {"a": {}, "b": {"enabled": False}}}).config.cluster
    assert peer_hosts(cluster, "a") == {}


def test_peers_are_found_at_their_backend_hosts_and_at_their_endpoints() -> None:
    nodes = {
        "a": ClusterNode(endpoint="http://10.0.0.1:8100", backend_host="10.9.0.1"),
        "b": ClusterNode(endpoint="https://Mac.Internal/x", backend_host="10.9.0.2"),
        "c": ClusterNode(endpoint="http://[FD00::3]:8100", backend_host="[fd00::4]"),
        "d": ClusterNode(endpoint="http://mac.internal:8101"),
        "e": ClusterNode(endpoint="http://10.0.0.5:8100", enabled=False),
    }
    assert peer_hosts(Cluster(nodes=nodes), "a") == {
        "10.9.0.2": ("b",),
        "mac.internal": ("b", "d"),
        "fd00::4": ("c",),
        "fd00::3": ("c",),
    }


def test_what_has_no_effect_yet_is_named_and_nothing_else() -> None:
    idle = [str(problem) for problem in find_idle(parse_config(EXAMPLE.encode(), PATH, VARIABLES).config)]
    assert idle == [
        "cluster.nodes.mac.proxy.models: has no effect yet: 1 model of mac cannot be asked for here (ask mac itself)"
    ]
    lloom = parse_config(json.dumps(WRITTEN_FOR_LLOOM).encode(), PATH, VARIABLES).config
    assert [problem.path for problem in find_idle(lloom)] == [
        "cluster.fleetHeadNode",
        "cluster.nodes.spark-1.proxy.models",
    ]
    assert find_idle(load({"nodeId": "b", "nodes": NODES}).config) == []


def test_a_target_on_a_node_that_is_not_there_is_named() -> None:
    model = {"id": "m", "targets": [{"runtime": "r"}, {"runtime": "r2", "node": "spark-9"}]}
    document = {"models": [model], "runtimes": {"r": {"engine": "sim"}, "r2": {"engine": "sim"}}}
    alone = parse_config(json.dumps(document).encode(), PATH, {})
    assert alone.config.models[0].targets[1].node == "spark-9"
    document["cluster"] = {"nodes": {"spark-1": {}}}
    with pytest.raises(ConfigErrors) as caught:
        parse_config(json.dumps(document).encode(), PATH, {})
    assert [str(problem) for problem in caught.value.problems] == [
        "models[0].targets[1].node: there is no node spark-9; did you mean spark-1?"
    ]


def test_an_empty_list_of_nodes_is_none() -> None:
    assert parse_config(b"cluster:\n  nodes:\n", PATH, {}).config.cluster.nodes == {}


def test_names_inside_of_sections_may_be_written_with_underscores() -> None:
    cluster = load({"node_id": "a", "nodes": {"a": {"backend_host": "10.0.0.1", "resources": {"memory_gb": 3}}}})
    assert cluster.config.cluster.nodes["a"].resources.memory_gb == 3
