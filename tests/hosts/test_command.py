"""The `llmgw` command on a machine that systemd runs: services, config, manual, and who may do what."""

import json
from collections.abc import Iterator

import pytest

from tests.hosts.harness import Host
from tests.hosts.node import PROGRAMS, Node
from tests.hosts.package import installed_host, wait_active

PATIENT_CURL = ("curl", "-fsS", "--retry", "60", "--retry-delay", "1", "--retry-connrefused")
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    """One host for all tests of this file, with one simulated model; each leaves it serving."""
    with installed_host("command") as host:
        wait_active(host, "llmgw.target", *PROGRAMS)
        yield Node(host)


def config_text(host: Host) -> str:
    return host.path("/etc/llmgw/config.yaml").read_text()


def test_the_packages_config_counts_as_empty_and_init_shows_before_it_writes(node: Node) -> None:
    packaged = config_text(node.host)

    shown = node.llmgw("init")
    assert "server:" in shown.stdout and "nothing was changed" in shown.stderr
    assert config_text(node.host) == packaged

    node.llmgw("init", "--apply")
    assert config_text(node.host).startswith(packaged.splitlines()[0])
    assert node.llmgw("init", "--apply", check=False).code == 5
    assert json.loads(node.llmgw("status", "--json").stdout)["config"]["error"] == ""


def test_a_model_is_added_and_systemd_shows_its_engine(node: Node) -> None:
    node.llmgw("model", "add", "demo", "--engine", "sim")

    assert [m["state"] for m in json.loads(node.llmgw("model", "list", "--json").stdout)["models"]] == ["running"]
    shown = node.host.run("systemctl", "show", "--property=User,Slice,ActiveState", node.engine().unit).stdout
    assert {"User=llmgw-engine", "Slice=llmgw-engines.slice", "ActiveState=active"} <= set(shown.splitlines())


def test_service_status_shows_every_unit_of_ours(node: Node) -> None:
    rows = {row["unit"]: row for row in json.loads(node.llmgw("service", "status", "--json").stdout)["units"]}

    assert {"llmgw.target", "llmgw-gateway.socket", *PROGRAMS, node.engine().unit} <= set(rows)
    assert {row["active"] for row in rows.values()} == {"active"}
    assert "llmgw-daemon.service" in node.llmgw("service", "status").stdout


def test_services_stop_start_and_restart_and_the_engine_runs_on(node: Node) -> None:
    engine = node.engine()

    node.llmgw("service", "restart")
    wait_active(node.host, "llmgw.target", *PROGRAMS)
    assert node.engine().pid == engine.pid

    node.llmgw("service", "stop")
    refused = node.llmgw("status", "--json", check=False)
    assert (refused.code, json.loads(refused.stdout)["error"]["code"]) == (9, "daemon_not_running")
    assert "systemctl start llmgw.target" in json.loads(refused.stdout)["error"]["hint"]
    assert node.main_pid(engine.unit) == engine.pid

    node.llmgw("service", "start")
    wait_active(node.host, "llmgw.target", *PROGRAMS)
    assert node.engine().pid == engine.pid


def test_nobody_may_change_things_and_is_told_what_to_do(node: Node) -> None:
    done = node.host.run(*NOBODY, "llmgw", "runtime-stop", "demo", "--json", check=False)
    assert done.code == 6
    assert "llmgw-admin" in json.loads(done.stdout)["error"]["hint"]

    done = node.host.run(*NOBODY, "llmgw", "init", "--apply", "--force", check=False)
    assert done.code != 0 and done.stderr.count("error:") == 1 and "Traceback" not in done.stderr
    assert node.state() == "running"


@pytest.mark.parametrize("page", ["1 llmgw", "5 llmgw-config", "7 llmgw-errors", "8 llmgw-daemon", "8 llmgw-gateway"])
def test_the_manual_is_installed(node: Node, page: str) -> None:
    section, name = page.split()

    assert node.host.path(f"/usr/share/man/man{section}/{name}.{section}.gz").exists()


def test_bash_completes_commands(node: Node) -> None:
    completed = node.host.run(
        *("env", "COMP_WORDS=llmgw runtime-", "COMP_CWORD=1", "_LLMGW_COMPLETE=bash_complete", "llmgw"), check=False
    )

    assert {"plain,runtime-start", "plain,runtime-stop", "plain,runtime-restart"} <= set(completed.stdout.split())
    assert node.host.run("bash", "-n", "/usr/share/bash-completion/completions/llmgw").code == 0


def test_another_port_in_the_config_moves_the_socket_and_back(node: Node) -> None:
    path = node.host.path("/etc/llmgw/config.yaml")
    before = path.read_text()
    engine = node.engine()

    path.write_text(before.replace("port: 8100", "port: 8777"))
    node.host.run(*PATIENT_CURL, "http://127.0.0.1:8777/health")
    assert node.host.run("curl", "-s", "http://127.0.0.1:8100/health", check=False).code == 7

    path.write_text(before)
    node.host.run(*PATIENT_CURL, "http://127.0.0.1:8100/health")
    assert node.engine() == engine
