"""`llmgw firewall` where no firewall is kept: a node of `llmgw up`, and root who installs what it asks for.

Nothing here touches the machine's own tables: what installs runs in a network namespace of its own.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cli.test_up import SIM, write_config
from tests.integration.cli.upped import ROOT, Up, environment, run_cli
from tests.integration.firewall.own_network import needs_root

WISH = {
    "version": 1,
    "enabled": True,
    "ports": [[8201, 8299]],
    "gatewayPort": 8100,
    "networks": ["10.1.2.0/24"],
    "clients": [],
}


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    state = tmp_path_factory.mktemp("state")
    write_config(state, f"# kept\n{SIM}firewall: {{networks: [10.1.2.0/24]}}\n")
    with Up(state) as running:
        yield running


def test_a_node_of_llmgw_up_leaves_the_machine_alone_and_says_so(up: Up) -> None:
    state = run_cli("firewall", "status", "--json", state=up.state).json
    assert (state["state"], state["code"], state["enabled"]) == ("unguarded", "firewall_left_alone", True)
    assert f"sudo llmgw --state {up.state} firewall sync" in state["hint"]
    assert state["networks"] == ["10.1.2.0/24"]
    assert "UNGUARDED" in run_cli("status", state=up.state).out
    findings = run_cli("doctor", "--json", state=up.state).json["findings"]
    assert [f["status"] for f in findings if f["check"] == "firewall"] == ["ok"], "it listens on loopback alone"


def test_what_it_wants_lies_in_a_file_and_follows_the_config(up: Up) -> None:
    path = up.state / "lib/firewall.json"
    assert json.loads(path.read_text())["networks"] == ["10.1.2.0/24"]

    done = run_cli("firewall", "off", "--json", state=up.state)
    assert (done.code, done.json["state"]) == (0, "off")
    assert json.loads(path.read_text())["enabled"] is False

    done = run_cli("firewall", "on", "--json", state=up.state)
    assert (done.code, done.error["code"]) == (10, "firewall_unguarded")
    assert json.loads(path.read_text())["enabled"] is True
    assert "# kept\n" in (up.state / "config.yaml").read_text()


def test_a_dry_run_needs_no_right_and_changes_nothing(up: Up) -> None:
    before = (up.state / "config.yaml").read_text()
    for command in (("show", "--dry-run"), ("on", "--dry-run")):
        assert "elements = { 10.1.2.0/24 }" in run_cli("firewall", *command, state=up.state).out
    off = run_cli("firewall", "off", "--dry-run", state=up.state)
    assert off.out == "add table inet llmgw\ndelete table inet llmgw\n"
    assert (up.state / "config.yaml").read_text() == before


@pytest.mark.parametrize("verb", ["show", "diff"])
def test_what_cannot_be_read_is_an_error_and_never_an_empty_table(up: Up, verb: str) -> None:
    done = run_cli("firewall", verb, "--json", state=up.state)
    assert (done.code, done.error["code"]) == (10, "firewall_unguarded")


def _in_own_network(state: Path, *commands: str) -> subprocess.CompletedProcess[str]:
    """Shell commands in a new network namespace; `llmgw` is this checkout's."""
    script = f'llmgw() {{ "{sys.executable}" -m cli --state "{state}" "$@"; }}\n' + "\n".join(commands)
    return subprocess.run(
        ["unshare", "--net", "sh", "-c", script],
        cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@needs_root
def test_root_installs_what_the_file_says_and_the_second_time_there_is_nothing_to_do(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/firewall.json").write_text(json.dumps(WISH))
    done = _in_own_network(
        tmp_path, "llmgw firewall sync", "llmgw firewall sync --json", "nft list set inet llmgw networks4",
        "llmgw firewall show", "llmgw firewall diff --json",
    )  # fmt: skip
    assert "installed the table" in done.stdout, done
    assert '"step": "nothing"' in done.stdout
    assert "elements = { 10.1.2.0/24 }" in done.stdout


@needs_root
def test_a_file_that_is_not_to_be_trusted_installs_nothing(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/firewall.json").write_text(json.dumps({**WISH, "ports": [[5432, 5432]]}))
    done = _in_own_network(tmp_path, "llmgw firewall sync --json", "nft list tables")
    assert json.loads(done.stdout)["error"]["code"] == "firewall_state_refused", done


@needs_root
def test_root_without_a_daemon_sees_the_table_with_own_eyes(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("firewall: {networks: [10.1.2.0/24]}\n")
    done = _in_own_network(
        tmp_path, f"llmgw firewall show --dry-run > {tmp_path}/t", f"nft -f {tmp_path}/t",
        "llmgw firewall diff", "llmgw firewall show",
    )  # fmt: skip
    assert done.returncode == 0, done
    assert done.stdout.startswith("no difference\ntable inet llmgw {")
    assert "counter packets 0 bytes 0 drop" in done.stdout
