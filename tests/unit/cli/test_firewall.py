"""How the firewall is shown, and which drop-ins have systemd follow a node's wish."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec import structs

from cli.firewall import wanted_text
from cli.firewall_units import plan_drop_ins
from cli.firewall_views import firewall_lines
from cli.views import firewall_summary
from core.config.schema import Config, Firewall
from core.errors import UsageError
from core.firewall import FirewallState, PeerState
from core.paths import Layout

NOW = datetime(2025, 1, 1, 12, 0, tzinfo=UTC)
GUARDED = FirewallState(
    enabled=True,
    state="guarded",
    since="2025-01-01T11:00:00+00:00",
    private_ports=["8201-8299", "9000"],
    networks=["10.0.0.0/24", "fd00::7"],
    gateway_port=8100,
    mended=2,
    drift=["-        accept", "+        drop"],
    drift_at="2025-01-01T11:59:00+00:00",
)
UNGUARDED = FirewallState(
    enabled=True, state="unguarded", code="x", reason="no libnftables", hint="apt-get install", gateway_port=8100
)


def test_a_guarded_node_says_who_is_let_through_and_what_was_mended() -> None:
    lines = firewall_lines(GUARDED, NOW)
    assert lines[0] == "firewall       guarded, for 1 h"
    assert "  engines      ports 8201-8299, 9000: this machine, 10.0.0.0/24, fd00::7" in lines
    assert "  gateway      port 8100: this machine, everybody" in lines
    assert lines[-3:] == ["  mended       2 x, last 1 min ago:", "    -        accept", "    +        drop"]
    assert firewall_summary(GUARDED) == "guarded, engines are open to 10.0.0.0/24, fd00::7"


def test_an_unguarded_node_cannot_be_overlooked_and_says_why() -> None:
    lines = firewall_lines(UNGUARDED, NOW)
    assert lines[0] == "firewall       UNGUARDED"
    assert "  reason       no libnftables" in lines and "  hint         apt-get install" in lines
    assert firewall_summary(UNGUARDED) == "UNGUARDED: no libnftables"


PEERS = [
    PeerState(host="10.1.0.2", nodes=["b"], addresses=["10.1.0.2"]),
    PeerState(host="mac.lan", nodes=["c", "mac"], addresses=["10.1.0.3", "fd00::3"], resolved_at=GUARDED.since),
    PeerState(host="old.lan", nodes=["d"], addresses=["10.1.0.4"], problem="old.lan does not resolve"),
    PeerState(host="gone.lan", nodes=["e"], problem="gone.lan does not resolve"),
    PeerState(host="127.0.0.1", nodes=["f"]),
]  # fmt: skip


def test_peers_reach_the_gateway_beside_the_clients_that_are_named() -> None:
    for peers, said in ((PEERS, "this machine, the peers, 10.9.0.0/16"), ([], "this machine, 10.9.0.0/16")):
        state = structs.replace(GUARDED, clients=["10.9.0.0/16"], peers=peers)
        assert f"  gateway      port 8100: {said}" in firewall_lines(state, NOW)


def test_peers_are_named_with_their_nodes_and_with_what_is_wrong() -> None:
    state = structs.replace(GUARDED, peers=PEERS)
    assert [line for line in firewall_lines(state, NOW) if line.startswith("  peer ")] == [
        "  peer         b: 10.1.0.2",
        "  peer         c, mac: mac.lan (10.1.0.3, fd00::3)",
        "  peer         d: old.lan (10.1.0.4): old.lan does not resolve; what it meant last is kept",
        "  peer         e: gone.lan: gone.lan does not resolve; it is closed out",
        "  peer         f: 127.0.0.1 is this machine, or not looked up yet",
    ]
    assert firewall_summary(state) == "guarded, engines are open to 10.0.0.0/24, fd00::7, b, c, mac, d"


def test_what_is_wanted_is_nothing_when_it_is_off() -> None:
    assert wanted_text(Config(firewall=Firewall(enabled=False))) == ""
    assert wanted_text(Config()).startswith("table inet llmgw {\n")


def test_the_packages_own_state_needs_no_drop_in() -> None:
    assert plan_drop_ins(Layout.system()) == {}


def test_another_state_is_watched_and_synced_instead() -> None:
    files = plan_drop_ins(Layout.under(Path("/home/ada/50% done")))
    path, service = files.values()
    assert path == "[Path]\nPathChanged=\nPathChanged=/home/ada/50%% done/lib/firewall.json\n"
    assert 'Environment="LLMGW_STATE=/home/ada/50%% done"\n' in service
    assert "ConditionPathExists=\nConditionPathExists=/home/ada/50%% done/lib/firewall.json\n" in service


@pytest.mark.parametrize("name", ["a\nExecStart=/bin/sh", 'a"b', "a\\x20b", "a'b", "a\x00b"])
def test_a_path_that_a_unit_file_cannot_hold_is_refused(name: str) -> None:
    with pytest.raises(UsageError):
        plan_drop_ins(Layout.under(Path("/home") / name))
