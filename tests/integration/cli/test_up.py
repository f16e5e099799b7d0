"""`llmgw up` with the simulated engine: real supervisor, daemon, gateway and engine; no network."""

import json
import os
import signal
import socket
import tempfile
import urllib.request
from pathlib import Path

import pytest

from tests.integration.cli.upped import Up, engine_pids, free_port, pids_like, processes_of, run_cli, wait_until

SIM = "models: [{id: demo, runtime: demo}]\nruntimes: {demo: {engine: sim, keepWarm: true}}\n"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state directory whose config serves one simulated model on a port of its own."""
    write_config(tmp_path, SIM)
    return tmp_path


def write_config(state: Path, text: str) -> None:
    (state / "config.yaml").write_text(f"server: {{port: {free_port()}}}\n{text}")


def ask(url: str, model: str = "demo") -> str:
    """One chat completion through the gateway."""
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4})
    request = urllib.request.Request(f"{url}/v1/chat/completions", body.encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return str(json.load(answer)["choices"][0]["message"]["content"])


def answers(url: str) -> bool:
    try:
        return bool(ask(url))
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_it_serves_and_a_signal_leaves_no_process_behind(state: Path, number: signal.Signals) -> None:
    with Up(state) as up:
        assert ask(up.serving["url"])
        assert set(up.serving) == {"url", "model", "models", "on", "answer", "tookS", "state", "pid"}
        assert len(processes_of(state)) >= 4

        assert up.stop(number) == 0

        assert processes_of(state) == {}


def test_a_second_up_on_the_same_state_is_refused_and_the_first_goes_on(state: Path) -> None:
    with Up(state) as up:
        second = run_cli("up", "--json", state=state)

        assert (second.code, second.error["code"]) == (5, "already_up")
        assert ask(up.serving["url"])


def test_a_busy_port_is_one_clear_message_and_nothing_is_left(state: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])

        refused = run_cli("up", "--port", port, state=state)

    assert refused.code == 5
    assert f"port {port} on 127.0.0.1 is in use" in refused.err
    assert refused.err.count("error:") == 1 and "Traceback" not in refused.err
    assert processes_of(state) == {}


def test_a_port_that_is_asked_for_is_kept_in_the_config(state: Path) -> None:
    port = free_port()
    with Up(state, "--port", str(port)) as up:
        assert up.serving["url"] == f"http://127.0.0.1:{port}"
        assert run_cli("status", "--json", state=state).json["serverPort"] == port


@pytest.mark.parametrize("program", ["units.embedded", "-m daemon", "gunicorn"])
def test_a_killed_program_comes_back_and_the_engine_never_stops(state: Path, program: str) -> None:
    with Up(state) as up:
        engine = engine_pids(state)
        before = pids_like(state, program)
        for pid in before:
            os.kill(pid, signal.SIGKILL)

        wait_until(f"{program} is back", lambda: bool(set(pids_like(state, program)) - set(before)))
        wait_until("it answers", lambda: answers(up.serving["url"]))
        wait_until("the daemon answers", lambda: run_cli("status", "--json", state=state).code == 0)

        assert engine_pids(state) == engine
        assert up.stop() == 0
        assert processes_of(state) == {}


def test_a_killed_engine_comes_back_by_itself(state: Path) -> None:
    with Up(state) as up:
        (engine,) = engine_pids(state)
        os.kill(engine, signal.SIGKILL)

        wait_until("another engine runs", lambda: bool(set(pids_like(state, "engines.sim")) - {engine}))
        wait_until("it answers", lambda: answers(up.serving["url"]))


def test_after_a_kill_of_up_itself_the_next_takes_over_with_the_engine_still_loaded(state: Path) -> None:
    with Up(state) as first:
        engine = engine_pids(state)
        others = set(processes_of(state)) - set(engine)
        first.kill()
        assert engine_pids(state) == engine

        with Up(state) as second:
            assert engine_pids(state) == engine
            assert not others & set(processes_of(state))
            assert ask(second.serving["url"])
            assert "taking over" in second.err
            assert second.stop() == 0
            assert processes_of(state) == {}


def test_the_next_up_takes_over_also_when_it_comes_by_another_path(state: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(state)
    with Up(state) as first:
        engine = engine_pids(state)
        first.kill()

        with Up(link) as second:
            assert engine_pids(state) == engine
            assert second.stop() == 0
            assert processes_of(state) == {}


def test_what_an_operator_stopped_stays_stopped_across_a_new_up(state: Path) -> None:
    with Up(state) as up:
        assert run_cli("runtime-stop", "demo", state=state).code == 0
        up.stop()

    with Up(state) as up:
        held = run_cli("runtimes", "demo", "--json", state=state).json["runtimes"][0]
        assert (held["state"], held["hold"]) == ("stopped", True)
        assert run_cli("runtime-start", "demo", state=state).code == 0
        assert ask(up.serving["url"])


@pytest.mark.parametrize("program", ["units.embedded", "-m daemon", "gunicorn"])
def test_a_program_that_is_killed_while_the_model_loads_does_not_keep_it_from_serving(
    tmp_path: Path, program: str
) -> None:
    write_config(tmp_path, SIM.replace("keepWarm: true", "keepWarm: true, options: {loadTimeS: 2.0}"))
    with Up(tmp_path, wait=False) as up:
        wait_until("the engine loads", lambda: bool(pids_like(tmp_path, "engines.sim")))
        engine = engine_pids(tmp_path)
        for pid in pids_like(tmp_path, program):
            os.kill(pid, signal.SIGKILL)

        up.wait_serving()

        assert ask(up.serving["url"])
        assert engine_pids(tmp_path) == engine


def test_it_stops_in_order_when_it_is_asked_to_while_the_model_loads(tmp_path: Path) -> None:
    write_config(tmp_path, SIM.replace("keepWarm: true", "keepWarm: true, options: {loadTimeS: 3600.0}"))
    with Up(tmp_path, wait=False) as up:
        wait_until("the engine loads", lambda: bool(pids_like(tmp_path, "engines.sim")))

        assert up.stop() == 0
        assert processes_of(tmp_path) == {}


def test_it_serves_on_and_stops_in_order_when_nobody_reads_what_it_says(state: Path) -> None:
    with Up(state, wait=False) as up:
        assert up.process.stdout is not None and up.process.stderr is not None
        up.process.stdout.close()
        port = run_cli("config", "show", "--json", state=state).json["config"]["server"]["port"]
        wait_until("it answers", lambda: answers(f"http://127.0.0.1:{port}"))

        assert up.stop() == 0
        assert processes_of(state) == {}


def test_a_state_directory_may_be_called_anything() -> None:
    # Not below pytest's folder: the paths of the sockets in it have to stay short.
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="cli ü %h $HOME ${x} 'q' \"d\" \\") as name:
        state = Path(name)
        write_config(state, SIM)
        with Up(state) as up:
            assert ask(up.serving["url"])
            assert run_cli("status", state=state).code == 0
            assert up.stop() == 0
            assert processes_of(state) == {}


def test_an_invalid_config_is_named_before_anything_is_started(state: Path) -> None:
    (state / "config.yaml").write_text("server: {port: 99999}\n")

    refused = run_cli("up", "--json", state=state)

    assert (refused.code, refused.error["code"]) == (3, "config_invalid")
    assert processes_of(state) == {}


def test_without_an_index_the_first_up_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "mirror").mkdir()
    state = tmp_path / "state"
    state.mkdir()
    write_config(state, f"engines: {{mirror: {tmp_path / 'mirror'}}}\n")

    refused = run_cli("up", state=state)

    assert refused.code == 10, refused.err
    assert refused.err.count("error:") == 1 and "Traceback" not in refused.err
    assert processes_of(state) == {}
    assert "models" not in (state / "config.yaml").read_text()


def test_an_engine_that_does_not_start_ends_up_with_its_last_words(state: Path) -> None:
    write_config(
        state,
        "models: [{id: m, runtime: m}]\nruntimes:\n  m:\n    engine: command\n    keepWarm: true\n    memoryGb: 0.5\n"
        '    command: [/bin/sh, -c, "echo the cat ate it >&2; exit 3"]\n',
    )

    refused = run_cli("up", state=state)

    assert refused.code == 10, refused.err
    assert "the cat ate it" in refused.err and refused.err.count("error:") == 1
    assert processes_of(state) == {}


def test_a_state_directory_that_may_not_be_written_is_one_clear_message(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")

    refused = run_cli("up", "--json", state=blocked / "state")

    assert refused.error["code"] == "storage_failed"
    assert str(blocked) in refused.error["message"]
