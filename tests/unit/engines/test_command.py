"""An operator's own command: placeholders and health URLs."""

from dataclasses import replace
from pathlib import Path

import pytest

from engines.adapter import KEY_FILE, EngineSpec, Health, NodeFacts
from engines.registry import get_adapter

_SPEC = EngineSpec("r", "command", ("m",), 8201, home=Path("/h"), command=("/bin/s",))


def _argv(*words: str, **change: object) -> tuple[str, ...]:
    spec = replace(_SPEC, command=("/bin/s", *words), **change)  # type: ignore[arg-type]  # a table of fields
    return get_adapter("command").build_command(spec, None, NodeFacts(1, 1)).argv[1:]


def test_placeholders_stand_for_the_runtimes_values() -> None:
    assert _argv("{host}:{port}", "--m={model}", "{keyFile}", "{home}/x") == (
        "127.0.0.1:8201",
        "--m=m",
        KEY_FILE,
        "/h/x",
    )


def test_other_braces_are_left_alone() -> None:
    assert _argv("{", "{}", '{"a": {"b": 1}}', "{Port}", "${port}") == ("{", "{}", '{"a": {"b": 1}}', "{Port}", "$8201")


def test_a_value_that_looks_like_a_placeholder_is_not_filled_again() -> None:
    assert _argv("{model}", served_models=("{keyFile}",)) == ("{keyFile}",)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("", "/health"),
        ("/ready?x=1", "/ready?x=1"),
        ("http://127.0.0.1:{port}/up", "http://127.0.0.1:8201/up"),
        ("http://{host}:{port}/up", "http://127.0.0.1:8201/up"),
        ("https://h/x", "https://h/x"),
    ],
)
def test_a_health_url_is_a_path_or_a_whole_url(url: str, path: str) -> None:
    spec = replace(_SPEC, health_url=url)

    assert get_adapter("command").check_spec(spec) == []
    assert get_adapter("command").health_probe(spec).path == path


@pytest.mark.parametrize(
    "url", ["health", "ftp://h/x", "http://", "http://[", "/a b", "/a\nHost: x", "file:///etc", "//h/x\r"]
)
def test_a_health_url_that_is_neither_is_named(url: str) -> None:
    assert get_adapter("command").check_spec(replace(_SPEC, health_url=url))


@pytest.mark.parametrize("command", [(), ("server",), ("./server",), ("/bin/s", "a\x00"), ("/bin/s", "{weights}")])
def test_a_command_that_cannot_start_is_named(command: tuple[str, ...]) -> None:
    assert get_adapter("command").check_spec(replace(_SPEC, command=command))


@pytest.mark.parametrize(
    ("status", "health"),
    [(200, Health.READY), (204, Health.READY), (404, Health.LOADING), (500, Health.LOADING), (403, Health.FAILED)],
)
def test_a_status_is_read_kindly_until_the_deadline(status: int, health: Health) -> None:
    assert get_adapter("command").read_health(status, b"") is health
