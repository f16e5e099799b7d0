"""Which addresses the other nodes of a cluster have, and whose each is."""

import json
from pathlib import Path

import pytest

from core.config.cluster import Cluster, ClusterNode
from core.peers import (
    Resolved,
    addresses_of,
    describe_nodes,
    names_of,
    parse_address,
    peer_addresses,
    read_resolved,
    write_resolved,
)

CLUSTER = Cluster(
    nodes={
        "a": ClusterNode(endpoint="http://10.0.0.1:8100", backend_host="10.9.0.1"),
        "b": ClusterNode(endpoint="http://10.0.0.2:8100", backend_host="FD00::2"),
        "mac": ClusterNode(endpoint="http://mac.lan:8100"),
        "old": ClusterNode(endpoint="http://mac.lan:8101", backend_host="old.lan"),
        "near": ClusterNode(endpoint="http://127.0.0.1:8101"),
    }
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.0.0.2", "10.0.0.2"),
        ("169.254.7.9", "169.254.7.9"),
        ("FD00:0::2", "fd00::2"),
        ("::ffff:10.0.0.2", "10.0.0.2"),
        ("fe80::1%eth0", None),
        ("127.0.1.1", None),
        ("::1", None),
        ("0.0.0.0", None),
        ("224.0.0.1", None),
        ("10.0.0.0/24", None),
        ("mac.lan", None),
        ("", None),
    ],
)
def test_an_address_is_one_that_another_machines_packets_come_from(text: str, expected: str | None) -> None:
    address = parse_address(text)
    assert (None if address is None else str(address)) == expected


def test_addresses_are_those_of_the_other_nodes_and_say_whose_they_are() -> None:
    known = {"mac.lan": Resolved(addresses=["10.0.0.9", "fd00::9", "10.0.0.2"])}
    assert names_of(CLUSTER, "a") == ["mac.lan", "old.lan"]
    assert peer_addresses(CLUSTER, "a", known) == {
        "fd00::2": "b",
        "10.0.0.2": "b, mac, old",
        "10.0.0.9": "mac, old",
        "fd00::9": "mac, old",
    }
    assert addresses_of("old.lan", known) == []


def test_a_comment_never_grows_too_long_for_the_kernel() -> None:
    assert describe_nodes(["a" * 64] * 9) == f"{'a' * 64} and 8 more"


def test_what_names_meant_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "peers.json"
    names = {"mac.lan": Resolved(addresses=["10.0.0.9"], at="2026-01-01T00:00:00+00:00")}
    write_resolved(path, names)
    assert read_resolved(path) == names
    assert path.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("text", ["", "[]", '{"names": 3}', "\xff", json.dumps({"names": {"a": {}}})])
def test_a_file_that_is_broken_knows_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "peers.json").write_text(text, "latin-1")
    assert read_resolved(tmp_path / "peers.json") == {}
    assert read_resolved(tmp_path / "absent.json") == {}
