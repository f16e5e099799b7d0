"""Is the machine guarded? Engines demand keys all the same, so an open port is a warning and blocks nothing."""

from collections.abc import Iterator

from core.config.check import is_loopback
from core.firewall import PeerState
from core.hardware import Finding
from daemon.hardware.checks.finding import ok, warning
from daemon.hardware.facts import Facts


def check(facts: Facts) -> Iterator[Finding]:
    firewall = facts.firewall
    if firewall is None:
        return
    if firewall.enabled:
        yield from (_unresolved(peer) for peer in firewall.peers if peer.problem)
    if firewall.state == "guarded":
        yield ok("firewall", "engines' ports are closed to all but the networks of the config")
    elif firewall.state == "off":
        yield ok("firewall", "switched off by the config")
    elif firewall.code == "firewall_left_alone" and (facts.config is None or is_loopback(facts.config.server.host)):
        yield ok("firewall", f"{firewall.reason}; nothing of it listens on other addresses than loopback")
    elif firewall.since:
        yield warning("firewall", f"the node is unguarded: {firewall.reason}", firewall.hint or "llmgw firewall status")


def _unresolved(peer: PeerState) -> Finding:
    node = peer.nodes[0]
    kept = "what it meant before is kept" if peer.addresses else f"engines' ports are closed to {node}"
    remedy = f"mend the name service, or set cluster.nodes.{node}.backendHost to an address"
    return warning("firewall", f"{peer.problem}; {kept}", remedy)
