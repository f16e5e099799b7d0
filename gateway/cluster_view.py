"""`GET /gateway/cluster`: every node of the cluster, as far as this one knows. Pure.

The shape is the reference system's: the cluster, and below it a snapshot for each node. This node's is its own. Of the
others nothing is known but what the config says, for nobody asks them: `state` is `unknown`, and what would be
observed is null.
"""

from core.api import NodeState
from core.cluster import ClusterNodeState, alone
from gateway.node_view import Json, SystemFacts, describe_node
from gateway.table import Lookup


def describe_cluster(state: NodeState, lookup: Lookup, system: SystemFacts) -> Json:
    """The cluster object."""
    cluster = state.cluster or alone(state.node)
    return {
        "enabled": len(cluster.nodes) > 1,
        "id": cluster.id,
        "nodeId": cluster.node_id,
        "leaderNode": cluster.leader_node,
        "nodes": {
            node.id: {**describe_node(state, lookup, system), **_placed(node, "reachable")}
            if node.local
            else _describe_other(node)
            for node in cluster.nodes
        },
    }


def _describe_other(node: ClusterNodeState) -> Json:
    return {
        "id": node.id,
        "name": node.name or node.id,
        "local": False,
        "reachable": None,
        "labels": node.labels,
        "resources": node.resources,
        "telemetry": None,
        "runtimeManager": {"runtimes": {}},
        **_placed(node, "unknown" if node.enabled else "disabled"),
    }


def _placed(node: ClusterNodeState, state: str) -> Json:
    return {"endpoint": node.endpoint or None, "state": state}
