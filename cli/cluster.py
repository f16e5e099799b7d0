"""`llmgw cluster`: the nodes that belong together, as this one knows them."""

import asyncio

import click

from cli.output import say, show_json, show_table
from cli.session import Session, pass_session, shared_options
from cli.status import read_state
from core.cluster import ClusterNodeState, ClusterState, alone

_COLUMNS = ("NODE", "ROLE", "ENDPOINT", "STATE", "MEMORY", "LABELS")


@click.group(short_help="Show the nodes of the cluster.")
def cluster() -> None:
    """The nodes that belong together, by the config of this one: llmgw-config(5), CLUSTER."""


@cluster.command("nodes")
@shared_options
@pass_session
def cluster_nodes(session: Session) -> None:
    """List the nodes of the cluster that this node is in.

    STATE is `here` for this node, and `unknown` for the others: nodes do not ask each other yet.
    """
    node = asyncio.run(read_state(session))
    state = node.cluster or alone(node.node)
    if session.json:
        show_json({**_head(state), "nodes": [node_json(node) for node in state.nodes]})
        return
    say(f"cluster {state.id}")
    show_table(_COLUMNS, [node_row(node, state) for node in state.nodes])


def _head(state: ClusterState) -> dict[str, object]:
    return {"id": state.id, "nodeId": state.node_id, "leaderNode": state.leader_node}


def node_json(node: ClusterNodeState) -> dict[str, object]:
    """One node, with stable keys."""
    return {
        "id": node.id,
        "name": node.name,
        "endpoint": node.endpoint,
        "local": node.local,
        "state": node_state(node),
        "labels": node.labels,
        "resources": node.resources,
    }


def node_row(node: ClusterNodeState, state: ClusterState) -> tuple[str, ...]:
    """One node under its columns."""
    memory = node.resources.get("memoryGb")
    return (
        node.id,
        "leader" if node.id == state.leader_node else "-",
        node.endpoint or "-",
        node_state(node),
        f"{memory:g} GiB" if isinstance(memory, int | float) else "-",
        ", ".join(f"{name}={value}" for name, value in node.labels.items()) or "-",
    )


def node_state(node: ClusterNodeState) -> str:
    """In a word."""
    if node.local:
        return "here"
    return "unknown" if node.enabled else "disabled"
