"""Who may reach which port of this machine: what the rules are made from. Pure.

Engines, gates and the daemon's own ports are private: only the networks named in the config and the other nodes of the
cluster reach them. The gateway's port is for clients and for those nodes: what they may ask of engines, they may ask of
the gateway, where they need a key besides. Loopback passes everywhere and is not even mentioned here.
"""

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from core.config.schema import Config
from core.networks import Network, parse_network
from core.peers import Address

PortRange = tuple[int, int]
"""First and last, both included."""

Peer = tuple[Address, str]
"""An address, and the nodes that it belongs to, in words."""

EVERYBODY: tuple[Network, ...] = (ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("::/0"))


@dataclass(frozen=True, slots=True)
class Policy:
    """What the table says. Ranges are sorted and never touch; networks are the fewest that say the same."""

    private_ports: tuple[PortRange, ...]
    networks: tuple[Network, ...]
    """Who reaches the private ports."""
    peers: tuple[Peer, ...]
    """Who else does, and reaches the gateway's port whoever else may; each address once, IPv4 first."""
    gateway_port: int
    """0: no rule about it."""
    clients: tuple[Network, ...]
    """Who reaches the gateway's port beside the peers."""


def build_policy(config: Config, *, engine_ports: Iterable[int] = (), peers: Mapping[str, str] | None = None) -> Policy:
    """What the config wants. `engine_ports` are those of running engines, which an older config may have given them;
    `peers` are the addresses of other nodes, and whose each is (`core/peers.py`)."""
    fixed = (runtime.port for runtime in config.runtimes.values() if runtime.port is not None)
    single = ((port, port) for port in (*fixed, *engine_ports) if port)
    settings = config.firewall
    return make_policy(
        private_ports=(config.ports.backends, *single),
        networks=[parse_network(text) for text in settings.networks],
        peers=[(ipaddress.ip_address(text), nodes) for text, nodes in (peers or {}).items()],
        gateway_port=config.server.port,
        clients=[parse_network(text) for text in settings.clients],
    )


def make_policy(
    *,
    private_ports: Iterable[PortRange],
    networks: Iterable[Network],
    peers: Iterable[Peer] = (),
    gateway_port: int,
    clients: Iterable[Network],
) -> Policy:
    """Put it into the one form that equal policies share. No clients are all clients."""
    return Policy(
        private_ports=without_port(merge_ranges(private_ports), gateway_port),
        networks=collapse(networks),
        peers=tuple(sorted(dict(peers).items(), key=lambda peer: (peer[0].version, int(peer[0])))),
        gateway_port=gateway_port,
        clients=collapse(clients) or EVERYBODY,
    )


def merge_ranges(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Sorted, with those that overlap or touch made one: the kernel refuses the first and may join the second."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return tuple(merged)


def without_port(ranges: Iterable[PortRange], port: int) -> tuple[PortRange, ...]:
    """The gateway's port is never private, or clients would be locked out of it."""
    kept: list[PortRange] = []
    for low, high in ranges:
        if low <= port <= high:
            kept += [(a, b) for a, b in ((low, port - 1), (port + 1, high)) if a <= b]
        else:
            kept.append((low, high))
    return tuple(kept)


def collapse(networks: Iterable[Network]) -> tuple[Network, ...]:
    """The fewest networks that say the same, IPv4 first."""
    known = list(networks)
    four = [network for network in known if isinstance(network, ipaddress.IPv4Network)]
    six = [network for network in known if isinstance(network, ipaddress.IPv6Network)]
    return (*ipaddress.collapse_addresses(four), *ipaddress.collapse_addresses(six))


def show_range(ports: PortRange) -> str:
    low, high = ports
    return str(low) if low == high else f"{low}-{high}"
