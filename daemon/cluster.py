"""What the node tells of its cluster, from the config. Pure."""

import msgspec

from core.cluster import ClusterNodeState, ClusterState
from core.config.cluster import Cluster, ClusterNode, leader_node


def cluster_state(cluster: Cluster, this_node: str) -> ClusterState:
    """The section `cluster` for others to see: no key and no engine's address is in it."""
    nodes = cluster.nodes if this_node in cluster.nodes else {this_node: ClusterNode(), **cluster.nodes}
    return ClusterState(
        id=cluster.id,
        node_id=this_node,
        leader_node=leader_node(cluster, this_node),
        nodes=[_node(node_id, node, is_here=node_id == this_node) for node_id, node in nodes.items()],
    )


def _node(node_id: str, node: ClusterNode, *, is_here: bool) -> ClusterNodeState:
    resources = msgspec.to_builtins(node.resources)
    return ClusterNodeState(
        id=node_id,
        name=node.name,
        endpoint=node.endpoint,
        local=is_here,
        enabled=node.enabled,
        labels=node.labels,
        resources={name: value for name, value in resources.items() if value not in (None, [])},
    )
