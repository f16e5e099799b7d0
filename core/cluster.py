"""What the daemon tells of the cluster that its node is in: a part of `GET /v1/state`.

Only what the config says. Where the others' engines listen, and the keys that nodes show each other, are no part of it.
"""

from core.message import Message


class ClusterNodeState(Message, frozen=True, kw_only=True):
    """One node of the config."""

    id: str
    name: str = ""
    endpoint: str = ""
    """URL of its gateway; empty where the config gives none."""
    local: bool = False
    """It is this node."""
    enabled: bool = True
    labels: dict[str, str | int | float | bool] = {}
    resources: dict[str, object] = {}
    """As in the config, and only what stands there."""


class ClusterState(Message, frozen=True, kw_only=True):
    """The cluster; a node alone is one of one node."""

    id: str
    node_id: str
    """This node."""
    leader_node: str
    nodes: list[ClusterNodeState] = []
    """In the config's order; this node is always among them."""


def alone(node: str) -> ClusterState:
    """What a node is in whose daemon knows of no clusters."""
    return ClusterState(id="local", node_id=node, leader_node=node, nodes=[ClusterNodeState(id=node, local=True)])
