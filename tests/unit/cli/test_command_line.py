"""The command line itself: help, usage errors, exit codes, JSON. No daemon runs here."""

import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from cli.app import llmgw, main


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in group.commands.items():
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


ALL = list(commands(llmgw))


@pytest.fixture(autouse=True)
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither this machine's own llmgw nor a developer's state is looked at."""
    monkeypatch.setenv("LLMGW_STATE", str(tmp_path / "state"))
    monkeypatch.delenv("LLMGW_CONFIG", raising=False)


@pytest.mark.parametrize(("path", "command"), ALL, ids=[" ".join(path) for path, _ in ALL])
def test_help_names_every_option_and_says_what_it_does(
    path: tuple[str, ...], command: click.Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*path, "--help"]) == 0

    text = capsys.readouterr().out
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert all(name in text for name in (*parameter.opts, *parameter.secondary_opts))
            assert parameter.help, f"{parameter.name} has no help"
    assert command.help


@pytest.mark.parametrize(
    ("path", "command"), [(p, c) for p, c in ALL if not isinstance(c, click.Group)], ids=lambda value: str(value)[:40]
)
def test_every_command_takes_json_state_and_config(path: tuple[str, ...], command: click.Command) -> None:
    names = {name for parameter in command.params for name in parameter.opts}

    assert {"--json", "--state", "--config"} <= names


@pytest.mark.parametrize(
    ("arguments", "exit_code", "code"),
    [
        (["nonsense"], 2, "usage"),
        (["status", "--nonsense"], 2, "usage"),
        (["logs"], 2, "usage"),
        (["logs", "x", "-n", "-3"], 2, "usage"),
        (["up", "--port", "0"], 2, "usage"),
        (["up", "--port", "65536"], 2, "usage"),
        (["model", "add", "x", "--command", "'unclosed"], 2, "usage"),
        (["model", "add", "nothing-like-it", "--dry-run"], 2, "unknown_source"),
        (["model", "add", "x", "--engine", "nothing"], 4, "engine_unknown"),
        (["model", "list"], 4, "config_missing"),
        (["config", "check"], 4, "config_missing"),
        (["config", "show"], 4, "config_missing"),
        (["status"], 9, "daemon_not_running"),
        (["runtimes"], 9, "daemon_not_running"),
        (["runtime-start", "x"], 9, "daemon_not_running"),
        (["runtime-stop", "x"], 9, "daemon_not_running"),
        (["runtime-restart", "x"], 9, "daemon_not_running"),
        (["logs", "x"], 9, "daemon_not_running"),
        (["reload"], 9, "daemon_not_running"),
        (["status", "--state", "/" + "x" * 200], 3, "state_path_too_long"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else None,
)
def test_an_error_has_its_exit_code_and_reads_the_same_as_text_and_as_json(
    arguments: list[str], exit_code: int, code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == exit_code
    text = capsys.readouterr()
    assert text.out == ""
    assert text.err.startswith("error: ") and f"[{code}]" in text.err

    assert main([*arguments, "--json"]) == exit_code
    as_json = capsys.readouterr()
    error = json.loads(as_json.out)["error"]
    assert error["code"] == code
    assert set(error) == {"code", "message", "hint"}


def test_a_config_with_many_errors_names_them_all_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "server: {port: 99999, hots: x}\nmodels: [{id: a, runtime: gone}]\n"
        'security: {apiKeys: ["${UNSET_KEY}"]}\nnonsense: 1\n'
    )

    assert main(["config", "check", "--config", str(config), "--json"]) == 3

    problems = json.loads(capsys.readouterr().out)["error"]["problems"]
    assert {"server.port", "server.hots", "security.apiKeys[0]", "nonsense"} <= {p["path"] for p in problems}


def test_an_engine_that_does_not_exist_and_an_argument_that_may_not_be_are_config_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "runtimes:\n  a: {engine: nothing}\n  b: {engine: llamacpp, weights: /x, args: [--host, 0.0.0.0]}\n"
    )

    assert main(["config", "check", "--config", str(config), "--json"]) == 3

    problems = json.loads(capsys.readouterr().out)["error"]["problems"]
    assert {"runtimes.a.engine", "runtimes.b.args"} <= {problem["path"] for problem in problems}


def test_init_shows_what_it_would_write_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.yaml"

    assert main(["init", "--config", str(config), "--port", "8155"]) == 0

    assert "port: 8155" in capsys.readouterr().out
    assert not config.exists()


def test_init_fills_a_config_of_comments_and_keeps_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("# from the package\n# nothing set\n")

    assert main(["init", "--apply", "--config", str(config)]) == 0
    assert main(["config", "check", "--config", str(config)]) == 0

    assert config.read_text().startswith("# from the package\n")
    assert "server:" in config.read_text()
    assert capsys.readouterr().out


def test_init_never_overwrites_what_somebody_wrote_unless_forced(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("server: {port: 8111}\n")

    assert main(["init", "--apply", "--config", str(config)]) == 5
    assert config.read_text() == "server: {port: 8111}\n"

    assert main(["init", "--apply", "--force", "--config", str(config)]) == 0
    assert "8100" in config.read_text()
    assert (tmp_path / "config.yaml.previous").read_text() == "server: {port: 8111}\n"


def test_a_dry_run_of_model_add_says_all_and_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("server: {port: 8111}\n")

    assert main(["model", "add", "demo", "--engine", "sim", "--dry-run", "--json", "--config", str(config)]) == 0

    plan = json.loads(capsys.readouterr().out)
    assert plan == {
        "applied": False,
        "model": "demo",
        "runtime": "demo",
        "engine": "sim",
        "weights": "",
        "changes": {"models": {"id": "demo", "runtime": "demo"}, "runtimes": {"engine": "sim", "keepWarm": True}},
    }
    assert config.read_text() == "server: {port: 8111}\n"


def test_show_never_shows_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MY_KEY", "sk-from-the-environment")
    config = tmp_path / "config.yaml"
    config.write_text(
        'security: {apiKeys: ["${MY_KEY}", sk-in-the-file]}\nruntimes: {c: {command: [/bin/x, "--key=${MY_KEY}"]}}\n'
    )

    for extra in ([], ["--json"], ["--origin"], ["--origin", "--json"]):
        assert main(["config", "show", "--config", str(config), *extra]) == 0
    assert main(["config", "check", "--config", str(config)]) == 0

    shown = capsys.readouterr()
    assert "sk-" not in shown.out + shown.err


def test_config_show_as_yaml_is_a_config_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("models: [{id: m, runtime: r}]\nruntimes: {r: {engine: sim}}\n")
    assert main(["config", "show", "--config", str(config)]) == 0
    again = tmp_path / "again.yaml"
    again.write_text(capsys.readouterr().out)

    assert main(["config", "check", "--config", str(again)]) == 0
