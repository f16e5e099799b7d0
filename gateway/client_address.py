"""Whose request it is, where trusted proxies stand in front: one pure decision.

`X-Forwarded-For` is believed only when the connection comes from a proxy in `server.trustedProxies`, and then from its
right end: each proxy appends whom it heard, so the first address that is no proxy of ours is the client, and what
stands left of it is the client's own invention. A header can make a client look farther away than its connection, never
nearer: nobody becomes a loopback client by saying so.
"""

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from core.networks import Network, parse_network
from gateway.auth import is_loopback

UNKNOWN = "unknown"
"""A client whose proxy did not say who it is; no address, and so never this machine."""
UNIX = "unix"
"""In the list of trusted proxies: whoever connects by a unix socket."""

_FORWARDED = b"x-forwarded-for"


@dataclass(frozen=True, slots=True)
class TrustedProxies:
    """`server.trustedProxies`, ready to be asked."""

    networks: tuple[Network, ...] = ()
    unix: bool = False

    def __bool__(self) -> bool:
        return self.unix or bool(self.networks)

    def covers(self, address: str) -> bool:
        """Whether a connection from here is a trusted proxy's; empty: a unix socket."""
        if not address:
            return self.unix
        try:
            found = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return False
        if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        return any(found.version == network.version and found in network for network in self.networks)


def compile_proxies(words: Sequence[str]) -> TrustedProxies:
    """What cannot be read is left out: it trusts nobody."""
    networks = []
    for word in words:
        try:
            networks.append(parse_network(word))
        except ValueError:
            continue
    return TrustedProxies(tuple(networks), UNIX in words)


def find_address(peer: str, headers: Iterable[tuple[bytes, bytes]], trusted: TrustedProxies) -> str:
    """The client's address; `peer` is the connection's (empty: a unix socket)."""
    if not trusted.covers(peer):
        return peer
    said = b",".join(value for name, value in headers if name == _FORWARDED)
    if not said:
        return peer
    for entry in reversed(said.split(b",")):
        address = _read_address(entry.decode("latin-1"))
        if address == UNKNOWN:
            return UNKNOWN
        if trusted.covers(address):
            continue
        return UNKNOWN if is_loopback(address) and peer and not is_loopback(peer) else address
    return UNKNOWN  # nothing but proxies: who was in front of the first is not said


def _read_address(entry: str) -> str:
    """An address as proxies write it, with a port or in brackets perhaps."""
    bare = entry.strip()
    if bare.startswith("["):
        bare = bare[1:].partition("]")[0]
    elif bare.count(":") == 1:
        bare = bare.partition(":")[0]
    try:
        return str(ipaddress.ip_address(bare))
    except ValueError:
        return UNKNOWN
