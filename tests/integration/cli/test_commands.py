"""Every command against the real daemon with the simulated engine: what it does, its JSON keys, its exit codes."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.integration.cli.test_up import SIM, ask, write_config
from tests.integration.cli.upped import ROOT, Up, environment, run_cli
from tests.rewriting import rewrite


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One node for all tests of this file; each leaves `demo` running."""
    state = tmp_path_factory.mktemp("state")
    write_config(state, f"# kept\n{SIM}")
    with Up(state) as running:
        yield running


def test_status_names_the_node_its_config_and_its_runtimes(up: Up) -> None:
    state = run_cli("status", "--json", state=up.state).json

    assert {"node", "version", "pid", "config", "serverPort", "runtimes", "serviceManager"} <= set(state)
    assert [(r["id"], r["state"]) for r in state["runtimes"] if r["id"] == "demo"] == [("demo", "running")]
    text = run_cli("status", state=up.state)
    assert "demo" in text.out and "running" in text.out and text.err == ""


def test_one_runtime_is_shown_with_all_that_is_known(up: Up) -> None:
    text = run_cli("runtimes", "demo", state=up.state).out

    assert "state      running" in text and "llmgw-engine-demo.service" in text
    (runtime,) = run_cli("runtimes", "demo", "--json", state=up.state).json["runtimes"]
    assert {"id", "state", "reason", "since", "engine", "models", "unit", "port", "pid", "keepWarm"} <= set(runtime)


def test_what_has_no_effect_is_a_warning_of_the_check_and_the_config_is_fine(tmp_path: Path) -> None:
    mac = "mac: {endpoint: 'http://mac.lan:8100', proxy: {models: [local/qwen]}}"
    (tmp_path / "config.yaml").write_text(f"cluster: {{nodeId: here, nodes: {{here: {{}}, {mac}}}}}\n")
    done = run_cli("config", "check", state=tmp_path)
    assert (done.code, done.out.splitlines()[1:]) == (
        0,
        [
            "warning: cluster.nodes.mac.proxy.models: has no effect yet: 1 model of mac cannot be asked for here "
            "(ask mac itself)"
        ],
    )
    assert len(run_cli("config", "check", "--json", state=tmp_path).json["warnings"]) == 1


def test_a_node_alone_is_a_cluster_of_one(up: Up) -> None:
    cluster = run_cli("cluster", "nodes", "--json", state=up.state).json
    name = run_cli("status", "--json", state=up.state).json["node"]
    assert (cluster["nodeId"], cluster["leaderNode"]) == (name, name)
    assert [(node["id"], node["state"]) for node in cluster["nodes"]] == [(name, "here")]
    assert name in run_cli("cluster", "nodes", state=up.state).out


@pytest.mark.parametrize("command", ["runtimes", "runtime-start", "runtime-stop", "runtime-restart", "logs"])
def test_a_runtime_that_does_not_exist_is_not_found_everywhere(up: Up, command: str) -> None:
    done = run_cli(command, "nope", "--json", state=up.state)

    assert (done.code, done.error["code"]) == (4, "runtime_unknown")


def test_stop_start_and_restart_say_where_the_runtime_ended_up(up: Up) -> None:
    stopped = run_cli("runtime-stop", "demo", "--json", state=up.state)
    assert (stopped.code, stopped.json["state"], stopped.json["hold"]) == (0, "stopped", True)

    started = run_cli("runtime-start", "demo", "--json", state=up.state)
    assert (started.code, started.json["state"], started.json["hold"]) == (0, "running", False)

    restarted = run_cli("runtime-restart", "demo", state=up.state)
    assert (restarted.code, restarted.out) == (0, "demo: running\n")


def test_logs_are_the_engines_own_lines(up: Up) -> None:
    done = run_cli("logs", "demo", "-n", "5", "--json", state=up.state)

    assert set(done.json) == {"runtime", "lines"}
    assert 0 < len(done.json["lines"]) <= 5


def test_a_reload_without_a_change_changes_nothing(up: Up) -> None:
    assert run_cli("reload", "--json", state=up.state).json == {
        "changed": False,
        "restarted": [],
        "started": [],
        "stopped": [],
    }


def test_an_invalid_config_is_refused_whole_and_status_says_so(up: Up) -> None:
    config = up.state / "config.yaml"
    before = config.read_text()
    try:
        rewrite(config, before + "nonsense: 1\n")
        refused = run_cli("reload", "--json", state=up.state)
        assert (refused.code, refused.error["code"]) == (3, "config_invalid")
        assert "nonsense" in run_cli("status", "--json", state=up.state).json["config"]["error"]
        assert ask(up.serving["url"])
    finally:
        rewrite(config, before)
    assert run_cli("reload", state=up.state).code == 0


def test_a_model_is_added_served_and_adding_it_again_changes_nothing(up: Up) -> None:
    first = run_cli("model", "add", "other", "--engine", "sim", "--json", state=up.state)
    assert first.code == 0, first.out
    assert set(first.json) == {"applied", "model", "runtime", "state", "url"}
    assert (first.json["applied"], first.json["state"]) == (True, "running")
    assert ask(up.serving["url"], "other")
    text = (up.state / "config.yaml").read_text()
    assert "# kept" in text

    again = run_cli("model", "add", "other", "--engine", "sim", "--json", state=up.state)

    assert (again.code, again.json["applied"]) == (0, False)
    assert (up.state / "config.yaml").read_text() == text
    listed = {m["id"]: m["state"] for m in run_cli("model", "list", "--json", state=up.state).json["models"]}
    assert listed["other"] == "running"


def test_a_model_whose_engine_fails_is_an_error_with_the_engines_words(up: Up) -> None:
    command = ("--command", "/bin/sh -c 'echo broken by design; exit 4'", "--memory", "0.5")
    failed = run_cli("model", "add", "bad", *command, state=up.state)

    assert failed.code == 10
    assert "broken by design" in failed.err and "llmgw logs bad" in failed.err
    assert ask(up.serving["url"])


def test_an_id_that_is_taken_is_a_conflict_before_anything_is_done(up: Up) -> None:
    before = (up.state / "config.yaml").read_text()

    refused = run_cli("model", "add", "x", "--id", "demo", "--command", "/bin/true", "--json", state=up.state)

    assert (refused.code, refused.error["code"]) == (5, "model_exists")
    assert (up.state / "config.yaml").read_text() == before


def test_many_at_once_all_get_their_model(up: Up) -> None:
    names = ["one", "two", "three", "two"]

    with ThreadPoolExecutor(len(names)) as pool:
        done = list(
            pool.map(
                lambda name: run_cli("model", "add", name, "--engine", "sim", "--on-demand", "--json", state=up.state),
                names,
            )
        )

    assert [result.code for result in done] == [0, 0, 0, 0], [result.out for result in done]
    listed = [model["id"] for model in run_cli("model", "list", "--json", state=up.state).json["models"]]
    assert sorted(name for name in listed if name in names) == ["one", "three", "two"]


def test_following_a_log_shows_new_lines_until_ctrl_c(up: Up) -> None:
    argv = [sys.executable, "-m", "cli", "logs", "demo", "-f", "-n", "1", "--json", "--state", str(up.state)]
    with subprocess.Popen(
        argv, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as follower:
        assert follower.stdout is not None
        try:
            before = json.loads(follower.stdout.readline())  # it follows now
            run_cli("runtime-restart", "demo", state=up.state)  # the engine says goodbye, and hello
            line = json.loads(follower.stdout.readline())
            follower.send_signal(signal.SIGINT)

            assert follower.wait(30) == 130
        finally:
            follower.kill()
    assert before["runtime"] == line["runtime"] == "demo"
    # One, or both at once when the machine is busy.
    assert len(before["lines"]) == 1 and line["lines"]


def test_a_model_of_a_backend_is_added_listed_and_shown(up: Up) -> None:
    config = up.state / "config.yaml"
    before = config.read_text()
    rewrite(config, f'{before}\nbackends: {{far: {{baseUrl: "http://127.0.0.1:9/v1", apiKey: sk-not-shown}}}}\n')
    try:
        added = run_cli("model", "add", "gpt", "--backend", "far", "--json", state=up.state)
        assert (added.code, added.json) == (0, {"applied": True, "model": "gpt", "backend": "far"})
        again = run_cli("model", "add", "gpt", "--backend", "far", "--json", state=up.state)
        assert again.json["applied"] is False

        (backend,) = run_cli("backends", "far", "--json", state=up.state).json["backends"]
        assert (backend["state"], backend["hasKey"], backend["models"]) == ("ready", True, ["gpt"])
        rows = {row["id"]: row for row in run_cli("model", "list", "--json", state=up.state).json["models"]}
        assert (rows["gpt"]["state"], rows["gpt"]["servedBy"]) == ("ready", ["far"])
        shown = [run_cli(*words, state=up.state) for words in (["status"], ["backends"], ["backends", "far"])]
        assert all("http://127.0.0.1:9/v1" in text.out and "sk-not-shown" not in text.out for text in shown)
        done = run_cli("backends", "nope", "--json", state=up.state)
        assert (done.code, done.error["code"]) == (4, "backend_unknown")
    finally:
        rewrite(config, before)
        assert run_cli("reload", state=up.state).code == 0
