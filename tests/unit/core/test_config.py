"""The config file: every problem is named with its place, and edits keep what an operator wrote."""

from pathlib import Path

import pytest

from core.config.check import is_loopback
from core.config.expand import parse_environment_file
from core.config.load import ConfigMissing, load_config, parse_config
from core.config.problem import ConfigErrors
from core.config.write import Document, edit_config, render_edit
from core.errors import ConflictError
from core.files import lock_file
from core.paths import Layout

PATH = Path("config.yaml")


def problems(text: str, **variables: str) -> list[str]:
    with pytest.raises(ConfigErrors) as caught:
        parse_config(text.encode(), PATH, variables)
    return [str(problem) for problem in caught.value.problems]


GOOD = """
server: {port: 8123}
models:
  - {id: qwen, runtime: qwen}
aliases: {default: qwen}
runtimes:
  qwen: {engine: llamacpp, weights: /w.gguf, keepWarm: true}
"""


def test_a_good_file_loads_with_defaults() -> None:
    loaded = parse_config(GOOD.encode(), PATH, {})
    assert loaded.config.server.port == 8123
    assert loaded.config.server.host == "127.0.0.1"
    assert loaded.config.runtimes["qwen"].keep_warm
    assert "server.port" in loaded.given and "server.host" not in loaded.given


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}", "runtimes:\n", "server:\nmodels:\n"])
def test_an_empty_file_is_all_defaults(text: str) -> None:
    assert parse_config(text.encode(), PATH, {}).config.server.port == 8100


def test_json_and_snake_case_are_accepted() -> None:
    config = parse_config(b'{"security": {"allow_missing_auth": false}}', PATH, {}).config
    assert not config.security.allow_missing_auth


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("server: {port: 0}", "server.port: expected int >= 1"),
        ("server: {port: 99999}", "server.port: expected int <= 65535"),
        ("server: {port: high}", "server.port: expected int, found str"),
        ("server: {prot: 1}", "server.prot: unknown key (did you mean port?)"),
        ("servr: {}", "servr: unknown key (did you mean server?)"),
        ("server: 3", "server: expected settings, found a number"),
        ("[1]", "expected sections, found a list"),
        ("just text", "expected sections, found text"),
        ("models: {a: b}", "models: expected a list, found settings"),
        ("models: [3]", "models[0]: expected settings, found a number"),
        ("models: [{id: a}]", "models[0].runtime: is missing"),
        ("models: [{id: a, runtime: b}]", "models[0].runtime: there is no runtime b"),
        ("models: [{id: a, runtime: a, kind: chatt}]", "models[0].kind: invalid enum value 'chatt'"),
        ("runtimes: [1]", "runtimes: expected names with settings below them, found a list"),
        ("runtimes: {a: {engine: command}}", "runtimes.a.command: is missing: engine is command (or set engine)"),
        ("runtimes: {a: {engine: sim, command: [x]}}", "runtimes.a.command: is only for engine: command, not sim"),
        ("runtimes: {'../x': {engine: sim}}", "runtimes.../x: is no runtime id"),
        (
            "runtimes: {a: {engine: sim, maxConcurrency: 2, interactiveReservedSlots: 2}}",
            "runtimes.a.interactiveReservedSlots: leaves no slot for other requests (maxConcurrency is 2)",
        ),
        ("runtimes: {a: {engine: sim, port: 8100}}", "runtimes.a.port: 8100 is the gateway's own (server.port)"),
        ("runtimes: {a: {engine: sim, port: 9}, b: {port: 9}}", "runtimes.b.port: 9 is also runtimes.a.port"),
        ("runtimes: {a: {engine: sim, args: [1]}}", "runtimes.a.args[0]: expected str, found int"),
        ("runtimes: {a: {engine: sim, env: {A: 1}}}", "runtimes.a.env[…]: expected str, found int"),
        ("runtimes: {a: {engine: sim, keepWarm: maybe}}", "runtimes.a.keepWarm: expected bool, found str"),
        ("runtimes: {a: {engine: sim, memoryGb: -1}}", "runtimes.a.memoryGb: expected float > 0"),
        ("aliases: {a: b}", "aliases.a: there is no model b"),
        ("ports: {backends: [9, 3]}", "ports.backends: starts at 9 and ends at 3"),
        ("ports: {backends: [8000, 8200]}", "ports.backends: contains server.port 8100"),
        ("server: {host: 0.0.0.0}", "server.host: 0.0.0.0 is reachable from other machines"),
        ("server: {host: 0.0.0.0}\nsecurity: {allowNonLoopbackBind: true}", "security.apiKeys: is empty"),
        ("security: {apiKeys: ['${NOPE}']}", "security.apiKeys[0]: the variable NOPE is not set"),
        ("security: {apiKeys: ['${}']}", "security.apiKeys[0]: ${} is not the name of a variable"),
        ("a: [", "line 1, column"),
        ("a: 1\na: 2", "line 2, column 1: found duplicate key"),
        ("a: !!python/object/apply:os.system [ls]", "line 1"),
        ("\x00", "is not YAML"),
        ("logging: {level: loud}", "logging.level: invalid enum value 'loud'"),
    ],
)  # fmt: skip
def test_a_wrong_file_says_where_and_what(text: str, expected: str) -> None:
    assert any(problem.startswith(expected) for problem in problems(text)), problems(text)


def test_ten_different_errors_are_reported_together() -> None:
    text = """
serverr: {}
server: {port: 0, hots: x}
security: {apiKeys: [1]}
models: [{id: a}, {id: 3, runtime: b}]
runtimes: {x: {engine: 3, colour: red, port: no}, y: 7}
logging: {level: loud}
"""
    found = problems(text)
    assert len(found) >= 10, found
    assert len(set(found)) == len(found)


def test_an_alias_bomb_is_refused_quickly() -> None:
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    assert "unfolds to more than" in problems("\n".join(lines))[0]


def test_deep_nesting_is_refused() -> None:
    assert problems("[" * 5000)


def test_a_file_that_is_not_utf8_says_at_which_byte() -> None:
    with pytest.raises(ConfigErrors, match="not UTF-8 at byte 3"):
        parse_config(b"a: \xff", PATH, {})


def test_variables_are_replaced_and_remembered() -> None:
    loaded = parse_config(b"security: {apiKeys: ['k-${A}$$${B}']}", PATH, {"A": "1", "B": "2"})
    assert loaded.config.security.api_keys == ["k-1$2"]
    assert loaded.references == {"security.apiKeys[0]": ("A", "B")}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A=1\n#B=2\n;C=3\nexport D='4 5'\nE=\"6\"\n=7\nF G=8\nH=", {"A": "1", "D": "4 5", "E": "6", "H": ""}),
        ("", {}),
        ("X = y ", {"X": "y"}),
    ],
)
def test_environment_files(text: str, expected: dict[str, str]) -> None:
    assert parse_environment_file(text) == expected


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("[::1]", True), ("localhost", True),
        ("127.evil.example", False), ("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("", False),
    ],
)  # fmt: skip
def test_only_literal_loopback_counts_as_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


OPERATOR = """# my node
server:
  port: 8123   # behind nginx
security:
  apiKeys: ["${KEY}"]
"""


def add_model(document: Document) -> None:
    document.setdefault("models", [])
    document["runtimes"] = {"qwen": {"engine": "sim"}}
    document["models"] = [{"id": "qwen", "runtime": "qwen"}]


def test_an_edit_keeps_comments_order_and_references(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(OPERATOR)
    path.chmod(0o640)
    loaded = edit_config(path, {"KEY": "sk-secret"}, add_model)
    text = path.read_text()
    assert loaded.config.models[0].id == "qwen"
    assert text.startswith(OPERATOR)
    assert "sk-secret" not in text
    assert path.stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "config.yaml.previous").read_text() == OPERATOR


def test_an_edit_that_makes_the_file_wrong_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(OPERATOR)
    with pytest.raises(ConfigErrors, match="models"):
        edit_config(path, {"KEY": "x"}, lambda d: d.update(models=[{"id": "a", "runtime": "no"}]))
    assert path.read_text() == OPERATOR


def test_a_file_of_comments_keeps_them_on_top() -> None:
    text = render_edit(b"# hello\n# world", PATH, add_model)
    assert text.startswith("# hello\n# world\n")
    assert parse_config(text.encode(), PATH, {}).config.models[0].id == "qwen"


def test_two_writers_at_once_are_a_conflict(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    with lock_file(tmp_path / ".config.yaml.lock"), pytest.raises(ConflictError):
        edit_config(path, {}, add_model)


def test_a_missing_file_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigMissing) as caught:
        load_config(Layout.under(tmp_path), {})
    assert caught.value.hint == "llmgw init --apply"


def test_a_state_directory_too_deep_for_sockets_is_refused() -> None:
    with pytest.raises(Exception, match="too deep"):
        Layout.under(Path("/tmp") / ("x" * 100))
