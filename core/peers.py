"""Where packets of the other nodes of the cluster come from: addresses of the config, and names with what they mean.

What a name resolved to last is kept in a file, so that a resolver that is away, or a machine that starts before it,
closes nobody out. The daemon writes that file (`daemon/peers.py`); it and the command read it. All but reading and
writing the file is pure.
"""

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from core.config.cluster import Cluster, peer_hosts
from core.files import write_atomic
from core.message import Message

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_COMMENT_LENGTH = 100
"""Characters; the kernel keeps 128 bytes for one comment."""


class Resolved(Message, frozen=True, kw_only=True):
    """What a name meant when it was last known."""

    addresses: list[str]
    at: str = ""
    """RFC 3339, UTC."""


class _File(Message, frozen=True, kw_only=True):
    names: dict[str, Resolved] = {}


def parse_address(text: str) -> Address | None:
    """An address that packets of another machine come from; None for what is none: names, and this machine itself.

    One that names its link is none either: addresses are matched on every interface.
    """
    try:
        address: Address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            return None
        address = address.ipv4_mapped or address
    is_elsewhere = not (address.is_loopback or address.is_unspecified or address.is_multicast)
    return address if is_elsewhere else None


def is_name(host: str) -> bool:
    """Whether a resolver is needed to know what it means."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host != "localhost"
    return False


def names_of(cluster: Cluster, this_node: str) -> list[str]:
    """The names among the peers' hosts."""
    return [host for host in peer_hosts(cluster, this_node) if is_name(host)]


def peer_addresses(cluster: Cluster, this_node: str, known: Mapping[str, Resolved]) -> dict[str, str]:
    """Every address of a peer -> the nodes that it belongs to, in words."""
    owners: dict[str, list[str]] = {}
    for host, nodes in peer_hosts(cluster, this_node).items():
        for text in addresses_of(host, known):
            owners.setdefault(text, []).extend(node for node in nodes if node not in owners.get(text, ()))
    return {text: describe_nodes(sorted(nodes)) for text, nodes in owners.items()}


def addresses_of(host: str, known: Mapping[str, Resolved]) -> list[str]:
    """What a host of the config means: itself, or what its name is known to mean; nothing for this machine itself."""
    texts = known[host].addresses if host in known else [] if is_name(host) else [host]
    return sort_addresses(texts)


def sort_addresses(texts: Iterable[str]) -> list[str]:
    """Those that a peer can have, each once and in its usual form, IPv4 first."""
    addresses = {address for text in texts if (address := parse_address(text)) is not None}
    return [str(address) for address in sorted(addresses, key=lambda address: (address.version, int(address)))]


def describe_nodes(nodes: Sequence[str]) -> str:
    """`spark-1, spark-2`; no longer than a comment in the kernel may be."""
    text = ", ".join(nodes)
    return text if len(text) <= _COMMENT_LENGTH else f"{nodes[0]} and {len(nodes) - 1} more"


def read_resolved(path: Path) -> dict[str, Resolved]:
    """What names meant last; nothing where that is not known, or the file cannot be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=_File).names
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return {}


def write_resolved(path: Path, names: Mapping[str, Resolved]) -> None:
    """Keep it. Raises: StorageError."""
    data = msgspec.json.encode(_File(names=dict(sorted(names.items()))))
    write_atomic(path, msgspec.json.format(data, indent=2) + b"\n", mode=0o644)
