"""What stands in the config and does nothing yet. Pure.

Files that were written for a whole cluster load, and none of their keys is passed over in silence: `llmgw config
check`, `llmgw status` and `llmgw doctor` name what has no effect.
"""

from collections.abc import Iterable

from core.config.cluster import Cluster, ClusterNode, local_node
from core.config.problem import Problem
from core.config.schema import Config


def find_idle(config: Config, host_name: str = "") -> list[Problem]:
    """Everything that is read and checked, and not acted upon."""
    cluster = config.cluster
    here = local_node(cluster, host_name)
    return [
        *_cluster(cluster),
        *(problem for node_id, node in cluster.nodes.items() if node_id != here for problem in _node(node_id, node)),
    ]


def _cluster(cluster: Cluster) -> Iterable[Problem]:
    default = Cluster()
    for key, value, usual in (
        ("fleetHeadNode", cluster.fleet_head_node, default.fleet_head_node),
        ("statusCacheMs", cluster.status_cache_ms, default.status_cache_ms),
        ("routingStatusCacheMs", cluster.routing_status_cache_ms, default.routing_status_cache_ms),
        ("targetFailureCooldownMs", cluster.target_failure_cooldown_ms, default.target_failure_cooldown_ms),
    ):
        if value != usual:
            yield Problem(f"cluster.{key}", "has no effect")


def _node(node_id: str, node: ClusterNode) -> Iterable[Problem]:
    count = len(node.proxy.models)
    if count and node.proxy.enabled and node.enabled:
        models = "1 model" if count == 1 else f"{count} models"
        message = f"has no effect yet: {models} of {node_id} cannot be asked for here"
        yield Problem(f"cluster.nodes.{node_id}.proxy.models", message, hint=f"ask {node_id} itself")
