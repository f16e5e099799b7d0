"""How the firewall reads in a terminal. Pure."""

from collections.abc import Sequence
from datetime import datetime

from cli.views import age
from core.firewall import FirewallState, PeerState


def firewall_lines(state: FirewallState, now: datetime) -> list[str]:
    """`llmgw firewall status`."""
    lines = [f"firewall       {state.state.upper() if state.state == 'unguarded' else state.state}"]
    if state.since:
        lines[0] += f", for {age(state.since, now)}"
    if state.reason:
        lines.append(f"  reason       {state.reason}")
    if state.hint:
        lines.append(f"  hint         {state.hint}")
    lines.append(f"  engines      ports {', '.join(state.private_ports)}: {_sources(state.networks, 'nobody else')}")
    lines += [f"  peer         {_peer(peer)}" for peer in state.peers]
    clients = ["the peers", *state.clients] if state.clients and state.peers else state.clients
    lines.append(f"  gateway      port {state.gateway_port}: {_sources(clients, 'everybody')}")
    if state.mended:
        lines.append(f"  mended       {state.mended} x, last {age(state.drift_at, now)} ago:")
        lines += [f"    {line}" for line in state.drift]
    if not state.enabled:
        lines.append("  firewall.enabled is false: nothing of this is installed")
    return lines


def _peer(peer: PeerState) -> str:
    """`spark-2, mac: mac.internal (10.0.0.2)`, and what is wrong with it."""
    means = ", ".join(address for address in peer.addresses if address != peer.host)
    text = f"{', '.join(peer.nodes)}: {peer.host}{f' ({means})' if means else ''}"
    if not peer.problem:
        return text if peer.addresses else f"{text} is this machine, or not looked up yet"
    return f"{text}: {peer.problem}; {'what it meant last is kept' if peer.addresses else 'it is closed out'}"


def _sources(networks: Sequence[str], none: str) -> str:
    return f"this machine, {', '.join(networks) or none}"
