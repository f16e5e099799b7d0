"""The section `cluster` as types, and what follows from it alone: which node this is, and where its peers are. Pure.

The names are those of LLooM's config, so that a file written for it loads unchanged. What of it has no effect yet is
told by `core/config/idle.py`, never passed over. Rules between fields are in `core/config/cluster_check.py`.
"""

from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta, field

from core.config.section import GiB, Name, NonNegative, Positive, Section

Weight = Annotated[int, Meta(ge=1, le=100)]
Share = Annotated[float, Meta(gt=0, lt=1)]
Label = str | int | float | bool


class NodeResources(Section, frozen=True, kw_only=True):
    """What a node has, and how much of it runtimes may use; of this node itself it goes before `runtimePolicy`."""

    memory_gb: GiB | None = None
    """Counts where it is less than what the machine has."""
    available_memory_gb: GiB | None = None
    memory_budget_gb: GiB | None = None
    max_memory_utilization: Share | None = None
    reserve_memory_gb: GiB | None = None
    accelerators: list[str] = []


class ProxyModel(Section, frozen=True, kw_only=True):
    """A model of another node that clients of this one can ask for."""

    id: Name | None = None
    """The other node's own name for it."""
    model: Name | None = None
    """The same, as older files write it."""
    alias: Name | None = field(name="as", default=None)
    """What clients here call it."""
    name: str = ""
    kind: Literal[
        "chat", "embedding", "image", "video", "audio_speech", "audio_transcription", "audio_generation"
    ] = "chat"  # fmt: skip
    remote_runtime: str = ""
    target_id: str = ""
    weight: Weight = 1
    upstream_model: str = ""
    advertise: bool = True
    federated: bool = True
    capabilities: list[str] | dict[str, object] = []
    input: list[str] = []
    output: list[str] = []
    context_window: Positive | None = None
    max_output_tokens: Positive | None = None
    max_prompt_tokens: Positive | None = None
    safe_context_window: Positive | None = None


class NodeProxy(Section, frozen=True, kw_only=True):
    """How requests would be handed to a node's gateway."""

    enabled: bool = True
    base_url: str = ""
    """Empty: the endpoint, and `/v1`."""
    backend: str = ""
    namespace: str | bool = ""
    """Empty: the node's id; `false`: none."""
    timeout_ms: Positive = 1_800_000
    models: list[str | ProxyModel] = []


class ClusterNode(Section, frozen=True, kw_only=True):
    """One node of the cluster, this one included."""

    enabled: bool = True
    name: str = ""
    endpoint: str = ""
    """URL of its gateway."""
    backend_host: str = ""
    """Its address on the network over which engines of different nodes speak."""
    backend_protocol: str = ""
    fabric_interface: str = ""
    fabric_hca: str = ""
    """RDMA devices, with commas between them."""
    fabric_address: str = ""
    rails: list[dict[str, object]] = []
    ssh_alias: str = ""
    api_key_env: str = ""
    """Name of the variable with the key that this node demands; empty: the cluster's."""
    api_key: str = ""
    labels: dict[str, Label] = {}
    resources: NodeResources = NodeResources()
    proxy: NodeProxy = NodeProxy()


class Cluster(Section, frozen=True, kw_only=True):
    """The nodes that belong together, and which of them this is."""

    id: Name = "local"
    node_id: str = ""
    """Empty: the only node of `nodes`, else the host's name."""
    leader_node: str = ""
    """Empty: this node."""
    api_key_env: str = ""
    """Name of the variable with the key that nodes show each other."""
    nodes: dict[str, ClusterNode] = {}
    fleet_head_node: str = ""
    discovery: dict[str, object] = {}
    status_cache_ms: NonNegative = 1000
    routing_status_cache_ms: NonNegative = 250
    target_failure_cooldown_ms: NonNegative = 5000


def local_node(cluster: Cluster, host_name: str) -> str:
    """The id of the node that this machine is."""
    if cluster.node_id:
        return cluster.node_id
    return next(iter(cluster.nodes)) if len(cluster.nodes) == 1 else host_name


def leader_node(cluster: Cluster, this_node: str) -> str:
    """The id of the node that leads; a node that names none leads itself."""
    return cluster.leader_node or this_node


def endpoint_host(endpoint: str) -> str:
    """The host of a node's URL, IPv6 without brackets; empty when there is none."""
    try:
        return urlsplit(endpoint).hostname or ""
    except ValueError:
        return ""


def peer_hosts(cluster: Cluster, this_node: str) -> dict[str, tuple[str, ...]]:
    """Addresses and names that the other nodes' packets may come from -> the nodes, in order."""
    hosts: dict[str, list[str]] = {}
    for node_id, node in cluster.nodes.items():
        if node_id == this_node or not node.enabled:
            continue
        for host in (bare_host(node.backend_host), endpoint_host(node.endpoint)):
            if host and node_id not in hosts.setdefault(host, []):
                hosts[host].append(node_id)
    return {host: tuple(sorted(nodes)) for host, nodes in hosts.items()}


def bare_host(text: str) -> str:
    """In lower case and without the brackets that an IPv6 address may be written in."""
    return text.strip().lower().removeprefix("[").removesuffix("]")
