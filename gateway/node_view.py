"""How this node describes itself to clients, leaders and dashboards. Pure.

Field names follow the reference system's node snapshot, so that a leader of either kind can read it; what we do
not know is left out or null, never guessed. Nothing in here tells where engines listen.
"""

from dataclasses import dataclass

import msgspec

from core.api import NodeState, RouteModel, RouteTarget, RuntimeStatus
from core.cluster import ClusterNodeState
from core.firewall import FirewallState
from gateway.table import FORM_PATHS, INFERENCE_PATHS, TRANSLATED, Lookup, offers
from gateway.telemetry import describe_telemetry

Json = dict[str, object]
GATEWAY_PROTOCOL = 1


@dataclass(frozen=True, slots=True)
class SystemFacts:
    """What the operating system says of itself; empty or null where it does not."""

    hostname: str
    platform: str
    arch: str
    release: str
    uptime_s: float | None


def list_model(model: RouteModel, created_s: int) -> Json:
    """One model in OpenAI's shape, with what we know of it under `metadata`."""
    metadata: Json = {"kind": model.kind, "endpoints": offered_paths(model)}
    if model.context_window is not None:
        metadata["contextWindow"] = model.context_window
    listed: Json = {"id": model.id, "object": "model", "created": created_s, "owned_by": "llmgw", "metadata": metadata}
    return listed | {"parent": model.parent} if model.parent else listed


def offered_paths(model: RouteModel) -> list[str]:
    """The paths on which the model can be asked for, by one of its targets at least."""
    return [
        path
        for path in (*INFERENCE_PATHS, *FORM_PATHS, *TRANSLATED)
        if any(offers(target, path) for target in model.targets)
    ]


def describe_node(state: NodeState, lookup: Lookup, system: SystemFacts) -> Json:
    """The node object of `GET /gateway/node`."""
    nodes = state.cluster.nodes if state.cluster is not None else []
    here = next((node for node in nodes if node.local), ClusterNodeState(id=state.node))
    return {
        "id": state.node,
        "name": here.name or state.node,
        "local": True,
        "reachable": True,
        "version": state.version,
        "labels": here.labels,
        "resources": here.resources,
        "system": {
            "hostname": system.hostname,
            "platform": system.platform,
            "arch": system.arch,
            "release": system.release,
            "uptimeSeconds": system.uptime_s,
        },
        "models": [describe_model(model) for model in lookup.table.models],
        "telemetry": describe_telemetry(state),
        "firewall": None if state.firewall is None else describe_firewall(state.firewall),
        "hardware": None if state.hardware is None else msgspec.to_builtins(state.hardware),
        "runtimeManager": describe_runtimes(state),
        "backends": describe_backends(state),
    }


def describe_firewall(firewall: FirewallState) -> Json:
    """How the firewall stands, without the table's text: that is the daemon's to show (`llmgw firewall show`)."""
    return {name: value for name, value in msgspec.to_builtins(firewall).items() if name != "table"}


def describe_security(lookup: Lookup) -> Json:
    """`GET /gateway/security`: which keys are asked for."""
    access, security = lookup.access, lookup.table.security
    is_open = access.loopback and access.allow_missing
    return {
        "loopback": access.loopback,
        "bindHost": security.bind_host,
        "allowMissingAuth": access.allow_missing,
        "allowRemoteAdmin": security.allow_remote_admin,
        "allowNonLoopbackBind": security.allow_non_loopback_bind,
        "authRequired": not is_open,
        "adminAuthRequired": access.has_admin_keys or not is_open,
        "inferenceKeysConfigured": bool(access.inference),
        "adminKeysConfigured": access.has_admin_keys,
        "publicTelemetry": False,
    }


def describe_model(model: RouteModel) -> Json:
    """A catalog entry: what it is and what serves it. `runtime` and `backend` are the first of each."""
    entry: Json = {"id": model.id, "kind": model.kind, "advertise": model.advertise}
    if model.context_window is not None:
        entry["contextWindow"] = model.context_window
    for kind in ("runtime", "backend"):
        first = next((name for target in model.targets if (name := getattr(target, kind))), None)
        if first is not None:
            entry[kind] = first
    entry["targets"] = [_describe_target(target) for target in model.targets]
    if model.aliases:
        entry["aliases"] = list(model.aliases)
    if model.parent:
        entry["parent"] = model.parent
    return entry


def _describe_target(target: RouteTarget) -> Json:
    kind = "backend" if target.backend else "runtime"
    served_by = target.backend or target.runtime
    return {"id": target.name or served_by, kind: served_by, "weight": target.weight, "ready": target.ready}


def describe_backends(state: NodeState) -> list[Json]:
    """Every backend, without its address and where its key is from: those are for who may read the config."""
    hidden = ("baseUrl", "keyFrom")
    return [
        {name: value for name, value in msgspec.to_builtins(status).items() if name not in hidden}
        for status in state.backends
    ]


def describe_runtimes(state: NodeState) -> Json:
    """`runtimeManager`: one row per runtime of this node."""
    return {"runtimes": {status.id: describe_runtime(status) for status in state.runtimes}, "events": []}


def describe_runtime(status: RuntimeStatus) -> Json:
    """A runtime's row: the daemon's words, with the names that the reference system's readers know."""
    hidden = ("log", "port", "gate", "kvEvents")
    row: Json = {name: value for name, value in msgspec.to_builtins(status).items() if name not in hidden}
    row["status"] = row.pop("state")
    row["statusSince"] = row.pop("since")
    row["transitionReason"] = row.pop("reason")
    row["kvEvents"] = status.kv_events is not None
    row["healthy"] = status.state == "running"
    row["lastError"] = status.reason if status.state == "failed" else None
    return row


def describe_status(state: NodeState, lookup: Lookup, *, daemon_connected: bool) -> Json:
    """`GET /gateway/status`."""
    return {
        "ok": True,
        "version": state.version,
        "gatewayProtocol": GATEWAY_PROTOCOL,
        "server": {"host": state.server_host, "port": state.server_port},
        "node": state.node,
        "serviceManager": state.service_manager,
        "config": msgspec.to_builtins(state.config),
        "runtimeManager": describe_runtimes(state),
        "backends": describe_backends(state),
        "gateway": describe_gateway(lookup, daemon_connected=daemon_connected),
    }


def describe_gateway(lookup: Lookup, *, daemon_connected: bool) -> Json:
    """What this gateway itself knows: how old its routes are and how much of them can serve."""
    targets = [target for model in lookup.table.models for target in model.targets]
    ready = sum(target.ready for target in targets)
    return {
        "daemonConnected": daemon_connected,
        "routes": {"version": lookup.table.version, "epoch": lookup.table.epoch},
        "inferenceReady": ready > 0,
        "endpointCount": len(targets),
        "readyEndpointCount": ready,
    }
