"""The firewall of a node in booted hosts: who reaches an engine's port, and what others may do to the rules.

All tests of this file share one node, and each begins with a config of its own.
"""

import json
from collections.abc import Iterator

import pytest

from tests.hosts.guarded import ENGINE, GATEWAY, OTHER, PROGRAMS, Guarded, guarded
from tests.hosts.package import wait_active
from tests.patience import MOMENT_S
from tests.rewriting import rewrite

SELF = {("self", 4), ("self", 6)}
PEER = {("peer", 4), ("peer", 6)}
STRANGER = {("stranger", 4), ("stranger", 6)}
ALL = SELF | PEER | STRANGER

THEIRS = """
table inet filter {
    chain input {
        type filter hook input priority 0; policy accept
        tcp dport 22 counter accept
    }
}
table ip nat {
    chain pre {
        type nat hook prerouting priority -100
        tcp dport 80 counter redirect to :8080
    }
}
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[Guarded]:
    with guarded() as made:
        yield made


def allow_peer(lab: Guarded) -> str:
    return f"firewall:\n  networks: [{lab.address(4, 'peer')}, {lab.address(6, 'peer')}]\n"


def test_an_engines_port_is_closed_to_all_but_the_machine_itself(lab: Guarded) -> None:
    lab.configure("{}\n")
    assert lab.state().state == "guarded"
    assert lab.who_reaches(ENGINE) == SELF
    assert lab.who_reaches(OTHER) == ALL, "what is not ours is left alone"
    assert "guarded" in lab.node.run("llmgw", "status").stdout
    assert [finding["status"] for finding in lab.doctor()] == ["ok"]


def test_it_is_reachable_from_an_allowed_address_and_from_no_other(lab: Guarded) -> None:
    lab.configure(allow_peer(lab))
    assert lab.who_reaches(ENGINE) == SELF | PEER
    lab.configure("firewall:\n  networks: [10.77.0.0/24]\n")
    assert lab.who_reaches(ENGINE) == SELF | {("peer", 4), ("stranger", 4)}
    lab.configure("firewall:\n  networks: ['fd77::/64']\n")
    assert lab.who_reaches(ENGINE) == SELF | {("peer", 6), ("stranger", 6)}


def test_the_gateways_port_is_for_everybody_or_for_the_clients_that_are_named(lab: Guarded) -> None:
    lab.listen(GATEWAY)
    lab.configure("{}\n")
    assert lab.who_reaches(GATEWAY) == ALL
    lab.configure(f"firewall:\n  clients: [{lab.address(4, 'peer')}, {lab.address(6, 'peer')}]\n")
    assert lab.who_reaches(GATEWAY) == SELF | PEER
    assert lab.who_reaches(ENGINE) == SELF
    peer = in_cluster(lab, endpoint=f"http://[{lab.address(6, 'peer')}]:8100", backendHost=lab.address(4, "peer"))
    lab.configure(f"firewall:\n  clients: [203.0.113.9]\n{peer}")
    assert lab.who_reaches(GATEWAY) == SELF | PEER, "a node of the cluster is let in whoever the clients are"


def test_it_is_switched_live_and_the_config_keeps_its_comments(lab: Guarded) -> None:
    lab.configure(f"# mine\n{allow_peer(lab)}")
    lab.node.run("llmgw", "firewall", "off")
    assert lab.who_reaches(ENGINE) == ALL
    assert "llmgw" not in lab.ruleset()
    assert lab.state().state == "off"
    lab.node.run("llmgw", "firewall", "on")
    assert lab.who_reaches(ENGINE) == SELF | PEER
    assert lab.node.path("/etc/llmgw/config.yaml").read_text().startswith("# mine\n")


def in_cluster(lab: Guarded, **node: str) -> str:
    """The peer as a node of the cluster that this node is in."""
    nodes = {"here": {}, "second": {"endpoint": "http://second.lab:8100", **node}}
    return f"cluster: {json.dumps({'nodeId': 'here', 'nodes': nodes})}\n"


def test_a_node_of_the_cluster_is_let_through_and_named_and_closed_out_when_it_leaves(lab: Guarded) -> None:
    four, six = lab.address(4, "peer"), lab.address(6, "peer")
    lab.configure(in_cluster(lab, endpoint=f"http://[{six}]:8100", backendHost=four))
    assert lab.who_reaches(ENGINE) == SELF | PEER
    shown = lab.node.run("llmgw", "firewall", "show").stdout
    assert f'{four} comment "second"' in shown and f'{six} comment "second"' in shown
    assert lab.node.run("llmgw", "firewall", "diff").stdout == "no difference\n"
    assert "engines are open to second" in lab.node.run("llmgw", "status").stdout
    counted = lab.state().mended
    lab.configure("{}\n")
    assert lab.who_reaches(ENGINE) == SELF
    assert lab.state().mended == counted


def test_the_name_of_a_node_is_looked_up_and_what_it_meant_last_is_kept_over_a_restart(lab: Guarded) -> None:
    hosts = lab.node.path("/etc/hosts")
    before = hosts.read_text()
    try:
        hosts.write_text(f"{before}{lab.address(4, 'peer')} second.lab\n")
        lab.configure(in_cluster(lab))
        lab.until(lambda: bool(lab.state().peers[0].addresses))
        assert lab.who_reaches(ENGINE) == SELF | {("peer", 4)}
        hosts.write_text(before)
        lab.node.run("systemctl", "restart", "llmgw-daemon")
        wait_active(lab.node, *PROGRAMS)
        lab.until(lambda: bool(lab.state().peers[0].problem))
        assert lab.who_reaches(ENGINE) == SELF | {("peer", 4)}
        assert lab.node.run("llmgw", "firewall", "diff").stdout == "no difference\n"
        (finding,) = [finding for finding in lab.doctor() if finding["status"] == "warning"]
        assert "second.lab" in finding["found"] and "cluster.nodes.second.backendHost" in finding["remedy"]
        hosts.write_text(f"{before}{lab.address(6, 'peer')} second.lab\n")
        lab.node.run("llmgw", "reload")
        lab.until(lambda: lab.who_reaches(ENGINE) == SELF | {("peer", 6)})
    finally:
        hosts.write_text(before)


def test_an_invalid_network_is_refused_whole_and_the_rules_stay(lab: Guarded) -> None:
    lab.configure(allow_peer(lab))
    rewrite(lab.node.path("/etc/llmgw/config.yaml"), "firewall:\n  networks: [10.0.0.7/24]\n")
    done = lab.node.run("llmgw", "reload", check=False)
    assert done.code == 3 and "firewall.networks[0]" in done.stderr and "did you mean 10.0.0.0/24" in done.stderr
    assert lab.who_reaches(ENGINE) == SELF | PEER


def test_a_dry_run_is_what_is_installed_and_the_difference_is_told(lab: Guarded) -> None:
    lab.configure(allow_peer(lab))
    assert lab.node.run("llmgw", "firewall", "diff").stdout == "no difference\n"
    script = lab.node.run("llmgw", "firewall", "show", "--dry-run").stdout
    lab.node.run("nft", "--check", "--file", "-", stdin=script)
    shown = lab.node.run("llmgw", "firewall", "show").stdout
    assert "llmgw: from elsewhere" in shown and "packets" in shown
    lab.node.run("systemctl", "stop", "llmgw-daemon")
    try:
        lab.node.run("nft", "add", "element", "inet", "llmgw", "networks4", "{ 192.0.2.1 }")
        done = lab.node.run("llmgw", "firewall", "diff", check=False)
        assert done.code == 5 and "192.0.2.1" in done.stdout, done
    finally:
        lab.node.run("systemctl", "start", "llmgw-daemon")
    lab.until(lambda: "192.0.2.1" not in lab.node.run("llmgw", "firewall", "show").stdout)


def test_it_survives_a_reload_of_nftables_which_flushes_everything(lab: Guarded) -> None:
    lab.configure(allow_peer(lab))
    lab.node.path("/etc/nftables.conf").write_text(f"flush ruleset\n{THEIRS}")
    lab.node.run("systemctl", "start", "nftables")
    before = lab.state().mended
    lab.node.run("systemctl", "reload", "nftables")
    took_s = lab.until(lambda: "table inet llmgw" in lab.ruleset())
    assert took_s < 2 + MOMENT_S
    assert lab.state().mended > before
    assert lab.who_reaches(ENGINE) == SELF | PEER
    assert "inet filter" in lab.ruleset()
    lab.until(lambda: "firewall_mended" in lab.node.journal("-u", "llmgw-daemon"))


def test_a_tampered_table_is_mended_and_nothing_of_anybody_elses_is_changed(lab: Guarded) -> None:
    lab.configure(allow_peer(lab))
    lab.node.run("nft", "--file", "-", stdin=f"flush ruleset\n{THEIRS}")
    lab.until(lambda: "table inet llmgw" in lab.ruleset())
    before = lab.others()
    assert "redirect" in before
    for tampering in (
        "insert rule inet llmgw private accept",
        "flush chain inet llmgw input",
        "add element inet llmgw networks4 { 10.77.0.254 }",
        "add table inet llmgw { flags dormant; }",
        "delete table inet llmgw",
    ):
        mended = lab.state().mended
        lab.node.run("nft", tampering)
        lab.until(lambda seen=mended: lab.state().mended > seen)  # type: ignore[misc]
        assert lab.who_reaches(ENGINE) == SELF | PEER, tampering
        assert lab.others() == before
    lab.node.run("llmgw", "firewall", "off")
    lab.node.run("llmgw", "firewall", "on")
    lab.node.run("systemctl", "restart", "llmgw-daemon")
    wait_active(lab.node, *PROGRAMS)
    assert lab.others() == before


def test_the_table_stays_when_the_daemon_is_killed_and_counts_on_when_it_is_back(lab: Guarded) -> None:
    lab.configure(allow_peer(lab))
    handles = lab.node.run("nft", "--handle", "list", "chain", "inet", "llmgw", "private").stdout
    lab.node.run("systemctl", "kill", "--signal=KILL", "llmgw-daemon")
    assert lab.who_reaches(ENGINE) == SELF | PEER
    wait_active(lab.node, *PROGRAMS)
    lab.until(lambda: lab.node.run("llmgw", "status", check=False).code == 0)
    assert lab.state().state == "guarded"
    again = lab.node.run("nft", "--handle", "list", "chain", "inet", "llmgw", "private").stdout
    assert [line.split("# handle")[-1] for line in again.splitlines()] == [
        line.split("# handle")[-1] for line in handles.splitlines()
    ]


@pytest.mark.parametrize("missing", ["permission", "library"])
def test_a_node_that_cannot_keep_it_says_so_and_serves(lab: Guarded, missing: str) -> None:
    lab.configure("{}\n")
    folder = lab.node.path("/etc/systemd/system/llmgw-daemon.service.d")
    folder.mkdir(parents=True, exist_ok=True)
    without = (
        "CapabilityBoundingSet=~CAP_NET_ADMIN"
        if missing == "permission"
        else ("InaccessiblePaths=/usr/lib/x86_64-linux-gnu/libnftables.so.1")
    )
    (folder / "unguarded.conf").write_text(f"[Service]\n{without}\n")
    lab.node.run("systemctl", "daemon-reload")
    lab.node.run("systemctl", "restart", "llmgw-daemon")
    try:
        wait_active(lab.node, *PROGRAMS)
        state = lab.state()
        code = "firewall_not_permitted" if missing == "permission" else "firewall_unavailable"
        assert (state.state, state.code) == ("unguarded", code), state
        assert "UNGUARDED" in lab.node.run("llmgw", "status").stdout
        assert [finding["status"] for finding in lab.doctor()] == ["warning"]
        health = json.loads(lab.node.run("curl", "-sS", f"http://127.0.0.1:{GATEWAY}/health").stdout)
        assert health["ok"] is True
        done = lab.node.run("llmgw", "firewall", "on", "--json", check=False)
        assert (done.code, json.loads(done.stdout)["error"]["code"]) == (10, "firewall_unguarded")
        said = lab.node.journal("-u", "llmgw-daemon", "--since=-60s").count("firewall_unguarded")
        assert 1 <= said <= 2, "once for each daemon that starts, not for every look"
        assert "Traceback" not in lab.node.journal("-u", "llmgw-daemon", "--since=-60s")
    finally:
        (folder / "unguarded.conf").unlink()
        lab.node.run("systemctl", "daemon-reload")
        lab.node.run("systemctl", "restart", "llmgw-daemon")
        wait_active(lab.node, *PROGRAMS)
    assert lab.state().state == "guarded"


GOOD = {
    "version": 1,
    "enabled": True,
    "ports": [[8201, 8299]],
    "gatewayPort": 8100,
    "networks": ["10.77.0.0/24"],
    "clients": [],
}


def test_a_hostile_state_file_is_refused_whole_and_a_good_one_is_installed_by_itself(lab: Guarded) -> None:
    lab.configure("{}\n")
    node, wish = lab.node, lab.node.path("/var/lib/llmgw/firewall.json")

    def write(text: str) -> None:
        node.run(
            "sh", "-c", "cat > /var/lib/llmgw/firewall.json; chown llmgw: /var/lib/llmgw/firewall.json", stdin=text
        )

    write(json.dumps(GOOD))
    refused = node.run("llmgw", "firewall", "sync", "--json", check=False)
    assert json.loads(refused.stdout)["error"]["code"] == "firewall_kept_by_daemon"
    node.run("systemctl", "stop", "llmgw-daemon")
    try:
        node.run("llmgw", "firewall", "sync", "--install")
        lab.until(lambda: "10.77.0.0/24" in lab.ruleset())
        assert lab.who_reaches(ENGINE) == SELF | {("peer", 4), ("stranger", 4)}

        before = lab.ruleset()
        for hostile in (
            {**GOOD, "ports": [[22, 22]]},
            {**GOOD, "networks": ["0.0.0.0/0"]},
            {**GOOD, "networks": ["10.77.0.2", "10.0.0.1 }; flush ruleset; #"]},
            {**GOOD, "nftables": [{"flush": {"ruleset": None}}]},
            {**GOOD, "peers": [{"address": "10.77.0.2", "nodes": 'b" }; flush ruleset; #'}]},
            {**GOOD, "peers": [{"address": "0.0.0.0/0", "nodes": "b"}]},
        ):
            write(json.dumps(hostile))
            done = node.run("llmgw", "firewall", "sync", "--json", check=False)
            assert json.loads(done.stdout)["error"]["code"] == "firewall_state_refused"
        lab.until(lambda: node.run("systemctl", "is-failed", "llmgw-firewall-sync.service", check=False).code == 0)
        assert lab.ruleset() == before
        wish.unlink()
        wish.symlink_to("/etc/shadow")
        done = node.run("llmgw", "firewall", "sync", check=False)
        assert done.code == 3 and "root:" not in done.stdout + done.stderr
        wish.unlink()

        write(json.dumps({**GOOD, "networks": [], "peers": [{"address": lab.address(6, "peer"), "nodes": "second"}]}))
        lab.until(lambda: lab.who_reaches(ENGINE) == SELF | {("peer", 6)})
        write(json.dumps({**GOOD, "networks": [lab.address(4, "peer")]}))
        lab.until(lambda: lab.who_reaches(ENGINE) == SELF | {("peer", 4)})
        assert "active" in node.run("systemctl", "is-active", "llmgw-firewall-sync.path").stdout
        write(json.dumps({**GOOD, "enabled": False}))
        lab.until(lambda: "llmgw" not in lab.ruleset())
    finally:
        node.run("systemctl", "disable", "--now", "llmgw-firewall-sync.path", "llmgw-firewall-sync.service")
        wish.unlink(missing_ok=True)
        node.run("systemctl", "start", "llmgw-daemon")
        wait_active(node, *PROGRAMS)
    assert lab.state().state == "guarded"


def test_root_installs_what_the_node_of_an_ordinary_user_asks_for(lab: Guarded) -> None:
    lab.configure("{}\n")
    node = lab.node
    node.run("useradd", "--create-home", "ada")
    node.run("chmod", "0700", "/home/ada")  # as Debian 13 makes it
    as_ada = ("setpriv", "--reuid=ada", "--regid=ada", "--init-groups", "sh", "-c")
    node.run(*as_ada, "mkdir -p ~ada/st/lib && cat > ~ada/st/lib/firewall.json", stdin=json.dumps(GOOD))
    sync = ("llmgw", "--state", "/home/ada/st", "firewall", "sync")
    node.run("systemctl", "stop", "llmgw-daemon")
    try:
        refused = node.run(*as_ada, f"{' '.join(sync)} --json", check=False)
        assert (refused.code, json.loads(refused.stdout)["error"]["code"]) == (6, "needs_root")
        assert "10.77.0.0/24" in node.run(*sync, "--dry-run").stdout
        assert "10.77.0.0/24" not in lab.ruleset()
        node.run(*sync, "--install")
        lab.until(lambda: "10.77.0.0/24" in lab.ruleset())
        for last in range(2, 9):  # the last word counts, however fast the words come
            wish = json.dumps({**GOOD, "networks": [f"10.77.0.{last}"]})
            node.run(*as_ada, "cat > ~ada/st/lib/new && mv ~ada/st/lib/new ~ada/st/lib/firewall.json", stdin=wish)
        lab.until(lambda: "elements = { 10.77.0.8 }" in lab.ruleset())
    finally:
        node.run("systemctl", "disable", "--now", "llmgw-firewall-sync.path", "llmgw-firewall-sync.service")
        node.run("sh", "-c", "rm -r /etc/systemd/system/llmgw-firewall-sync.*.d && systemctl daemon-reload")
        node.run("systemctl", "start", "llmgw-daemon")
        wait_active(node, *PROGRAMS)


def test_removing_the_package_removes_our_table_and_only_it(lab: Guarded) -> None:
    lab.configure("{}\n")
    lab.node.run("nft", "--file", "-", stdin=f"flush ruleset\n{THEIRS}")
    lab.until(lambda: "table inet llmgw" in lab.ruleset())
    before = lab.others()
    lab.node.run("apt-get", "remove", "--yes", "llmgw", timeout_s=120)
    assert "llmgw" not in lab.ruleset()
    assert lab.others() == before
