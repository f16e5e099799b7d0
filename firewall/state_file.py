"""The wish of a node that may not change the firewall itself: written by it, read by root as untrusted input.

    {"version": 1, "enabled": true, "ports": [[8201, 8299]], "gatewayPort": 8100,
     "networks": ["10.0.0.0/24"], "clients": [], "peers": [{"address": "10.1.0.2", "nodes": "spark-2"}]}

Whoever can write the file must not be able to do more with it than with his own node: close or open ports that root's
config does not give to llmgw, or make root read or wait for something else. A file that is wrong anywhere is refused
whole. Parsing is pure; `read_wish` and `write_wish` touch the disk.
"""

import os
import stat
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from core.config.schema import Config
from core.errors import ConfigError, NotFoundError
from core.files import write_atomic
from core.networks import Network, parse_network
from core.peers import parse_address
from firewall.policy import EVERYBODY, Peer, Policy, PortRange, build_policy, make_policy, merge_ranges

VERSION = 1
LIMIT_BYTES = 64 << 10
_LIMIT_ENTRIES = 1024
_SHORTEST = {4: 8, 6: 16}
"""Bits of prefix: engines' ports are not opened to half of the world by an untrusted file."""

_Port = Annotated[int, Meta(ge=1024, le=65535)]
_Text = Annotated[str, Meta(max_length=64)]
_Texts = Annotated[list[_Text], Meta(max_length=_LIMIT_ENTRIES)]
_Nodes = Annotated[str, Meta(max_length=120, pattern=r"^[A-Za-z0-9][A-Za-z0-9._, -]*\Z")]
"""It becomes a comment in the table: words, and nothing that could be taken for more."""
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class WishRefused(ConfigError):
    """The firewall's state file is not to be trusted or not to be understood; nothing was changed."""

    code = "firewall_state_refused"


class WishMissing(NotFoundError):
    """No node has left a wish."""

    code = "firewall_state_missing"


class _Peer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    address: _Text
    nodes: _Nodes


class _Wish(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    version: int
    enabled: bool
    ports: Annotated[list[tuple[_Port, _Port]], Meta(max_length=_LIMIT_ENTRIES)]
    gateway_port: _Port
    networks: _Texts
    clients: _Texts
    peers: Annotated[list[_Peer], Meta(max_length=_LIMIT_ENTRIES)] = []


def allowed_ports(config: Config) -> tuple[PortRange, ...]:
    """The ports that a wish may speak of: those that root's own config gives to llmgw."""
    policy = build_policy(config)
    return merge_ranges((*policy.private_ports, (policy.gateway_port, policy.gateway_port)))


def parse_wish(data: bytes, allowed: Iterable[PortRange]) -> Policy | None:
    """The policy that is wished for; None: no table. Raises: WishRefused."""
    try:
        wish = msgspec.json.decode(data, type=_Wish, strict=True)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WishRefused(f"the firewall's state file is not understood: {error}") from error
    if wish.version != VERSION:
        raise WishRefused(f"the firewall's state file has version {wish.version}, not {VERSION}")
    _check_ports(wish, tuple(allowed))
    policy = make_policy(
        private_ports=wish.ports,
        networks=_networks("networks", wish.networks),
        peers=[_peer(peer) for peer in wish.peers],
        gateway_port=wish.gateway_port,
        clients=_networks("clients", wish.clients),
    )
    return policy if wish.enabled else None


def _check_ports(wish: _Wish, allowed: tuple[PortRange, ...]) -> None:
    for low, high in (*wish.ports, (wish.gateway_port, wish.gateway_port)):
        if low > high:
            raise WishRefused(f"the firewall's state file has ports from {low} to {high}")
        if not any(first <= low and high <= last for first, last in allowed):
            raise WishRefused(
                f"the firewall's state file speaks of ports {low}-{high}, which this machine does not give to llmgw",
                hint="ports.backends and server.port in /etc/llmgw/config.yaml",
            )


def _networks(key: str, texts: list[str]) -> list[Network]:
    networks = []
    for text in texts:
        try:
            network = parse_network(text)
        except ValueError as error:
            raise WishRefused(f"{key} in the firewall's state file: {error}") from error
        if network.prefixlen < _SHORTEST[network.version]:
            raise WishRefused(f"{key} in the firewall's state file: {network} is too much of the world")
        networks.append(network)
    return networks


def _peer(peer: _Peer) -> Peer:
    address = parse_address(peer.address)
    if address is None or str(address) != peer.address.lower():
        raise WishRefused(f"peers in the firewall's state file: {peer.address!r} is no address of another machine")
    return address, peer.nodes


def render_wish(policy: Policy, *, enabled: bool) -> bytes:
    """The file's text."""
    wish = _Wish(
        version=VERSION,
        enabled=enabled,
        ports=list(policy.private_ports),
        gateway_port=policy.gateway_port,
        networks=[str(network) for network in policy.networks],
        clients=[] if policy.clients == EVERYBODY else [str(network) for network in policy.clients],
        peers=[_Peer(address=str(address), nodes=nodes) for address, nodes in policy.peers],
    )
    return msgspec.json.format(msgspec.json.encode(wish), indent=2) + b"\n"


def write_wish(path: Path, policy: Policy, *, enabled: bool) -> None:
    """Leave the wish; a file that says the same already is not written. Raises: StorageError."""
    data = render_wish(policy, enabled=enabled)
    if not path.is_file() or path.read_bytes() != data:
        write_atomic(path, data, mode=0o644)


def _read(descriptor: int, limit_bytes: int) -> bytes:
    data = b""
    while len(data) < limit_bytes and (more := os.read(descriptor, limit_bytes - len(data))):
        data += more
    return data


def read_wish(path: Path, writers: Collection[int]) -> bytes:
    """The file's bytes, if it is a plain file that one of these users alone can have written.

    Raises: WishMissing, WishRefused.
    """
    try:
        # NOFOLLOW: a link would show root another file. NONBLOCK: a pipe would keep root waiting.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise WishMissing(f"{path} is not there: no node has asked for a firewall here") from None
    except OSError as error:
        raise WishRefused(f"{path} cannot be opened as a plain file: {error.strerror}") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise WishRefused(f"{path} is no plain file")
        if status.st_uid not in writers:
            raise WishRefused(f"{path} belongs to user {status.st_uid}, who has no say here")
        if status.st_mode & _WRITABLE_BY_OTHERS:
            raise WishRefused(f"{path} can be written by others than its owner", hint=f"chmod go-w {path}")
        data = _read(descriptor, LIMIT_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(data) > LIMIT_BYTES:
        raise WishRefused(f"{path} is larger than {LIMIT_BYTES >> 10} KiB")
    return data
