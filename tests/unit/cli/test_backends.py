"""Backends on the command line: how they read, and what adding a model of theirs changes in the config."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cli.addition import ModelExists, Request, apply_addition, describe_model, plan_addition
from cli.app import main
from cli.backend_models import plan_backend_model
from cli.backend_views import backend_details, backend_row
from cli.backends import BackendUnknown
from core.api import BackendStatus
from core.config.load import parse_config
from core.config.schema import Config
from core.config.write import render_edit

PATH = Path("config.yaml")
NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
TEXT = """\
# mine
backends: {p: {baseUrl: "https://api.example.org/v1"}}
runtimes: {r: {engine: sim}}
models:
  - {id: far, backend: p, upstreamModel: org/far}
  - {id: near, runtime: r}
  - {id: both, targets: [{runtime: r}, {backend: p}]}
aliases: {other: near}
"""


def config(text: str = TEXT) -> Config:
    return parse_config(text.encode(), PATH, {}).config


def test_a_model_of_a_backend_is_one_entry_and_comments_stay() -> None:
    addition = plan_backend_model("gpt", "p", "org/gpt", "embedding", config())
    assert addition.changes
    text = render_edit(TEXT.encode(), PATH, lambda document: apply_addition(document, addition))
    assert text.startswith("# mine\n")
    added = config(text).models[-1]
    assert (added.id, added.backend, added.runtime, added.upstream_model, added.kind) == (
        "gpt", "p", "", "org/gpt", "embedding",
    )  # fmt: skip


def test_the_same_again_changes_nothing() -> None:
    assert not plan_backend_model("far", "p", "org/far", None, config()).changes


@pytest.mark.parametrize(
    ("model_id", "backend", "upstream_model", "words"),
    [
        ("far", "p", "", "served by p as org/far"),
        ("near", "p", "", "served by r"),
        ("both", "p", "", "served by r, p"),
        ("other", "p", "", "is an alias of 'near'"),
    ],
)
def test_an_id_that_is_taken_is_refused(model_id: str, backend: str, upstream_model: str, words: str) -> None:
    with pytest.raises(ModelExists, match=words):
        plan_backend_model(model_id, backend, upstream_model, None, config())


def test_a_backend_that_is_not_there_is_refused_with_the_nearest() -> None:
    with pytest.raises(BackendUnknown, match="there is no backend pp; did you mean p"):
        plan_backend_model("new", "pp", "", None, config())


def test_an_engine_is_not_added_under_the_id_of_a_backends_model() -> None:
    with pytest.raises(ModelExists, match="'far' exists already and is served by p"):
        plan_addition(Request("far", "sim"), config())


def test_models_say_all_that_serves_them() -> None:
    told = {model.id: describe_model(model, config()) for model in config().models}
    assert {id_: (each["servedBy"], each["runtime"], each["backend"]) for id_, each in told.items()} == {
        "far": (["p"], "", "p"),
        "near": (["r"], "r", ""),
        "both": (["r", "p"], "r", "p"),
    }


ROWS: list[tuple[dict[str, object], tuple[str, ...]]] = [
    ({}, ("p", "ready", "https://x/v1", "none", "0", "-", "-")),
    ({"has_key": True, "models": ["a", "b"]}, ("p", "ready", "https://x/v1", "set", "0", "a, b", "-")),
    (
        {"max_concurrency": 4, "active_requests": 4, "queued_requests": 2},
        ("p", "ready", "https://x/v1", "none", "4 of 4, 2 wait", "-", "-"),
    ),
    (
        {"state": "out", "last_error": "connect failed", "last_error_at": "2026-01-01T11:59:00Z"},
        ("p", "out", "https://x/v1", "none", "0", "-", "1 min ago: connect failed"),
    ),
    ({"state": "failed", "reason": "no room"}, ("p", "failed", "https://x/v1", "none", "0", "-", "no room")),
]


@pytest.mark.parametrize(("fields", "row"), ROWS)
def test_a_backend_reads(fields: dict[str, object], row: tuple[str, ...]) -> None:
    status = BackendStatus(**({"id": "p", "state": "ready", "base_url": "https://x/v1"} | fields))  # type: ignore[arg-type]
    assert backend_row(status, NOW) == row


def test_one_backend_is_shown_with_where_its_key_is_from() -> None:
    lines = backend_details(BackendStatus(id="p", state="ready", has_key=True, key_from="P_KEY"), NOW)
    assert lines[0] == "p" and "  key        set, from P_KEY" in lines


def run(tmp_path: Path, *words: str) -> int:
    path = tmp_path / "config.yaml"
    path.write_text(TEXT)
    return main(["model", "add", *words, "--state", str(tmp_path), "--config", str(path)])


def test_a_dry_run_says_what_it_would_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "gpt", "--backend", "p", "--upstream-model", "org/gpt", "--dry-run", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "applied": False,
        "model": "gpt",
        "backend": "p",
        "changes": {"models": {"id": "gpt", "backend": "p", "upstreamModel": "org/gpt"}},
    }
    assert (tmp_path / "config.yaml").read_text() == TEXT


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["gpt", "--backend", "p", "--engine", "sim"], 2),
        (["gpt", "--backend", "p", "--on-demand"], 2),
        (["gpt", "--backend", "p", "--arg", "x"], 2),
        (["gpt", "--upstream-model", "x", "--engine", "sim"], 2),
        (["gpt", "--backend", "none"], 4),
        (["near", "--backend", "p"], 5),
    ],
)
def test_what_does_not_go_together_is_refused(tmp_path: Path, words: list[str], code: int) -> None:
    assert run(tmp_path, *words, "--dry-run") == code
