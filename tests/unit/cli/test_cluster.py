"""How the nodes of a cluster are listed."""

from cli.cluster import node_json, node_row
from core.cluster import ClusterNodeState, ClusterState

HERE = ClusterNodeState(id="a", local=True, resources={"memoryGb": 119.5}, labels={"role": "leader", "gpus": 1})
OTHER = ClusterNodeState(id="b", endpoint="http://b.lan:8100")
OFF = ClusterNodeState(id="c", endpoint="http://c.lan:8100", enabled=False)
STATE = ClusterState(id="lab", node_id="a", leader_node="a", nodes=[HERE, OTHER, OFF])


def test_a_row_says_who_leads_and_which_node_this_is() -> None:
    assert [node_row(node, STATE) for node in STATE.nodes] == [
        ("a", "leader", "-", "here", "119.5 GiB", "role=leader, gpus=1"),
        ("b", "-", "http://b.lan:8100", "unknown", "-", "-"),
        ("c", "-", "http://c.lan:8100", "disabled", "-", "-"),
    ]


def test_a_node_in_json_has_stable_keys() -> None:
    assert node_json(OTHER) == {
        "id": "b",
        "name": "",
        "endpoint": "http://b.lan:8100",
        "local": False,
        "state": "unknown",
        "labels": {},
        "resources": {},
    }
