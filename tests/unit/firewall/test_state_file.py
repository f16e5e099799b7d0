"""The state file as untrusted input: what is wrong anywhere is refused whole."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.config.schema import Config, Firewall, Runtime, Server
from firewall.policy import build_policy
from firewall.state_file import (
    LIMIT_BYTES,
    WishMissing,
    WishRefused,
    allowed_ports,
    parse_wish,
    read_wish,
    render_wish,
    write_wish,
)

ALLOWED = allowed_ports(Config())
GOOD: dict[str, Any] = {
    "version": 1,
    "enabled": True,
    "ports": [[8201, 8299]],
    "gatewayPort": 8100,
    "networks": ["10.0.0.0/24", "fd00::7"],
    "clients": [],
}


def text(**changes: object) -> bytes:
    return json.dumps({**GOOD, **changes}).encode()


def test_a_good_wish_becomes_the_policy_that_the_config_would_be() -> None:
    config = Config(firewall=Firewall(networks=GOOD["networks"]))
    assert parse_wish(text(), ALLOWED) == build_policy(config)
    assert parse_wish(text(enabled=False), ALLOWED) is None


HOSTILE: dict[str, bytes] = {
    "nothing": b"",
    "no JSON": b"table inet llmgw { }",
    "half of it": text()[:40],
    "more after it": text() + b"{}",
    "not UTF-8": text().replace(b"fd00", b"\xff\xfe00"),
    "NULs": b"\0" * 4096,
    "a list": b"[]",
    "null": b"null",
    "very deep": b"[" * 50_000,
    "deep inside": text().replace(b"[]", b"[" * 20_000),
    "another version": text(version=2),
    "no version": b"{}",
    "a version as text": text(version="1"),
    "enabled as a number": text(enabled=1),
    "something more": text(table="filter"),
    "commands": text(nftables=[{"flush": {"ruleset": None}}]),
    "a port of everybody's": text(ports=[[22, 22]]),
    "a port of somebody's": text(ports=[[5432, 5432]]),
    "one port too many": text(ports=[[8201, 8300]]),
    "all ports": text(ports=[[1024, 65535]]),
    "ports backwards": text(ports=[[8299, 8201]]),
    "port 0": text(ports=[[0, 0]]),
    "a port beyond the last": text(ports=[[8201, 65536]]),
    "a negative port": text(ports=[[-1, 8299]]),
    "a port as text": text(ports=[["8201", "8299"]]),
    "a port with a fraction": text(ports=[[8201.5, 8299]]),
    "a port that is a name": text(ports=[["ssh", "ssh"]]),
    "three ends of a range": text(ports=[[8201, 8250, 8299]]),
    "another gateway": text(gatewayPort=22),
    "a gateway of somebody's": text(gatewayPort=5432),
    "no gateway": text(gatewayPort=0),
    "the whole world": text(networks=["0.0.0.0/0"]),
    "half of the world": text(networks=["0.0.0.0/1", "128.0.0.0/1"]),
    "the whole other world": text(networks=["::/0"]),
    "clients, half of the world": text(clients=["128.0.0.0/1"]),
    "a name": text(networks=["localhost"]),
    "an interface": text(networks=["fe80::1%eth0"]),
    "host bits": text(networks=["10.0.0.7/24"]),
    "nft in an address": text(networks=["10.0.0.1 }; flush ruleset; add element inet llmgw networks4 { 10.0.0.2"]),
    "a set's name": text(networks=["@private_ports"]),
    "an object for an address": text(networks=[{"prefix": {"addr": "0.0.0.0", "len": 0}}]),
    "a number for an address": text(networks=[167772161]),
    "an endless address": text(networks=["1" * 60_000]),
    "a good one and a bad one": text(networks=["10.0.0.1", "nonsense"]),
    "too many": text(networks=["10.0.0.1"] * 1025),
    "too many ports": text(ports=[[8201, 8201]] * 1025),
    "peers that are no list": text(peers={"address": "10.1.0.2", "nodes": "b"}),
    "a peer without a name": text(peers=[{"address": "10.1.0.2"}]),
    "a peer with more": text(peers=[{"address": "10.1.0.2", "nodes": "b", "port": 22}]),
    "a peer that is a network": text(peers=[{"address": "0.0.0.0/0", "nodes": "b"}]),
    "a peer that is everybody": text(peers=[{"address": "0.0.0.0", "nodes": "b"}]),
    "a peer that is a name": text(peers=[{"address": "mac.internal", "nodes": "mac"}]),
    "a peer on an interface": text(peers=[{"address": "fe80::1%eth0", "nodes": "b"}]),
    "a peer that is this machine": text(peers=[{"address": "127.0.0.1", "nodes": "b"}]),
    "a peer in disguise": text(peers=[{"address": "::ffff:10.1.0.2", "nodes": "b"}]),
    "a peer whose name is nft": text(peers=[{"address": "10.1.0.2", "nodes": 'b" }; flush ruleset; #'}]),
    "a peer whose name has lines": text(peers=[{"address": "10.1.0.2", "nodes": "b\nc"}]),
    "a peer whose name ends a line": text(peers=[{"address": "10.1.0.2", "nodes": "b\n"}]),
    "a peer whose name is long": text(peers=[{"address": "10.1.0.2", "nodes": "b" * 121}]),
    "too many peers": text(peers=[{"address": "10.1.0.2", "nodes": "b"}] * 1025),
    "a bad one in what is off": text(enabled=False, networks=["nonsense"]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_whole(name: str) -> None:
    with pytest.raises(WishRefused):
        parse_wish(HOSTILE[name], ALLOWED)


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_no_bytes_do_anything_but_be_refused(data: bytes) -> None:
    with pytest.raises(WishRefused):
        parse_wish(data, ALLOWED)


@given(
    st.fixed_dictionaries(
        {
            key: st.just(value) | st.none() | st.integers() | st.lists(st.text(max_size=5) | st.integers(), max_size=3)
            for key, value in GOOD.items()
        }
    )
)
def test_a_wish_is_good_or_refused_and_nothing_else(wish: dict[str, object]) -> None:
    try:
        policy = parse_wish(json.dumps(wish).encode(), ALLOWED)
    except WishRefused:
        return
    assert policy is None or all(8201 <= low <= high <= 8299 for low, high in policy.private_ports)


def test_the_ports_are_those_of_roots_own_config() -> None:
    config = Config(server=Server(port=8000), runtimes={"a": Runtime(port=9000, command=["/bin/a"])})
    assert allowed_ports(config) == ((8000, 8000), (8201, 8299), (9000, 9000))
    assert parse_wish(text(gatewayPort=8000, ports=[[9000, 9000], [8201, 8205]]), allowed_ports(config)) is not None


def test_peers_are_wished_for_by_address_and_a_node_without_any_says_nothing_of_them() -> None:
    peers = {"10.1.0.2": "spark-2, mac", "fd00::3": "c"}
    policy = build_policy(Config(), peers=peers)
    assert parse_wish(render_wish(policy, enabled=True), ALLOWED) == policy
    assert b"peers" not in render_wish(build_policy(Config()), enabled=True)
    assert parse_wish(text(), ALLOWED) == build_policy(Config(firewall=Firewall(networks=GOOD["networks"])))


def test_what_is_written_is_read_as_the_same(tmp_path: Path) -> None:
    config = Config(firewall=Firewall(networks=["10.1.0.0/16"], clients=["10.0.0.0/8"]))
    policy = build_policy(config, peers={"10.2.0.1": "b"})
    path = tmp_path / "firewall.json"
    write_wish(path, policy, enabled=True)
    before = path.stat().st_ino
    write_wish(path, policy, enabled=True)
    assert path.stat().st_ino == before, "the same again must not wake root"
    assert parse_wish(read_wish(path, {os.geteuid()}), ALLOWED) == policy
    assert parse_wish(render_wish(policy, enabled=False), ALLOWED) is None


def _link(path: Path) -> None:
    path.with_name("other").write_bytes(text())
    path.symlink_to(path.with_name("other"))


def _loose(mode: int) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.write_bytes(text())
        path.chmod(mode)

    return make


def _hole(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


PLACES: dict[str, Callable[[Path], object]] = {
    "a link": _link,
    "a link that leads nowhere": lambda path: path.symlink_to("/nowhere"),
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a folder": lambda path: path.mkdir(),
    "a pipe that nobody writes to": lambda path: os.mkfifo(path),
    "a file that the group may write": _loose(0o664),
    "a file that all may write": _loose(0o646),
    "a file that is too large": lambda path: path.write_bytes(b" " * (LIMIT_BYTES + 1)),
    "a file with a hole of a terabyte": _hole,
}


@pytest.mark.parametrize("name", PLACES)
def test_what_is_no_plain_file_of_its_writer_is_refused_and_never_waited_for(name: str, tmp_path: Path) -> None:
    path = tmp_path / "firewall.json"
    PLACES[name](path)
    with pytest.raises(WishRefused):
        read_wish(path, {os.geteuid()})


def test_a_file_of_somebody_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "firewall.json"
    path.write_bytes(text())
    path.chmod(0o644)
    with pytest.raises(WishRefused, match="no say here"):
        read_wish(path, {os.geteuid() + 1})


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(WishMissing):
        read_wish(tmp_path / "firewall.json", {os.geteuid()})
