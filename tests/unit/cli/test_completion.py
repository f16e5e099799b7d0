"""What a Tab offers, from the files of one state directory."""

from pathlib import Path

import msgspec
import pytest
from click.shell_completion import ShellComplete

from cli.app import llmgw
from engines.builds import MANIFEST, Manifest
from engines.recipe import load_recipe

BUILDS = load_recipe("llamacpp").builds
VERSIONS = list(dict.fromkeys(build.version for build in BUILDS))
VARIANTS = list(dict.fromkeys(build.variant for build in BUILDS if build.variant))


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LLMGW_STATE", str(tmp_path))
    monkeypatch.delenv("LLMGW_CONFIG", raising=False)
    (tmp_path / "config.yaml").write_text(
        "runtimes: {qwen: {engine: sim}, quick: {engine: sim}, other: {engine: sim}}\n"
    )
    return tmp_path


def install(state: Path, engine: str, name: str) -> None:
    folder = state / "lib/engines" / engine / name
    folder.mkdir(parents=True)
    (folder / "program").write_text("#!/bin/sh\n")
    (folder / "program").chmod(0o755)
    manifest = Manifest(engine=engine, name=name, version="1", executable="program", source="s", sha256=[])
    (folder / MANIFEST).write_bytes(msgspec.json.encode(manifest))


def offered(*words: str) -> list[str]:
    """What is offered for the last word."""
    found = ShellComplete(llmgw, {}, "llmgw", "_LLMGW_COMPLETE").get_completions(list(words[:-1]), words[-1])
    return [item.value for item in found]


def test_versions_are_those_of_the_engine() -> None:
    assert VERSIONS and offered("engine", "install", "llamacpp", "--version", "") == VERSIONS
    assert offered("engine", "install", "llamacpp", "--version", VERSIONS[0][:2])[0] == VERSIONS[0]
    assert offered("engine", "mirror", "llamacpp", "--version", "") == VERSIONS


def test_variants_are_those_of_the_engine_and_of_the_version_if_one_is_named() -> None:
    assert VARIANTS and offered("engine", "install", "llamacpp", "--variant", "") == VARIANTS
    for version in VERSIONS:
        of_this = dict.fromkeys(build.variant for build in BUILDS if build.version == version and build.variant)
        assert offered("engine", "install", "llamacpp", "--version", version, "--variant", "") == list(of_this)


def test_a_version_is_one_of_the_variant_that_is_named() -> None:
    for variant in VARIANTS:
        of_this = dict.fromkeys(build.version for build in BUILDS if build.variant == variant)
        assert offered("engine", "install", "--variant", variant, "llamacpp", "--version", "") == list(of_this)


@pytest.mark.parametrize(
    "words",
    [
        ("engine", "install", "--version", ""),
        ("engine", "install", "nonesuch", "--version", ""),
        ("engine", "install", "llamacpp", "--version", "zzz"),
        ("engine", "install", "llamacpp", "--version", "0", "--variant", ""),
        ("engine", "remove", "../..", ""),
        ("engine", "remove", "llamacpp", ""),
        ("engine", "rollback", ""),
    ],
)
def test_nothing_is_offered_where_there_is_nothing(words: tuple[str, ...]) -> None:
    assert offered(*words) == []


def test_engines_to_install_are_those_that_have_builds() -> None:
    assert {"llamacpp", "vllm", "sglang"} <= set(offered("engine", "install", ""))
    assert "command" not in offered("engine", "install", "")
    assert offered("engine", "plan", "llama") == ["llamacpp"]


@pytest.mark.parametrize("verb", ["rollback", "prune", "remove", "show"])
def test_engines_that_are_here_are_offered_where_they_must_be(verb: str, state: Path) -> None:
    install(state, "vllm", "1-cpu")
    assert offered("engine", verb, "") == ["vllm"]


@pytest.mark.parametrize(
    "before",
    [
        ("engine", "remove", "llamacpp"),
        ("engine", "show", "llamacpp"),
        ("engine-check", "llamacpp", "--build"),
        ("ctl", "engine-check", "llamacpp", "--build"),
    ],
)
def test_builds_are_those_that_are_here(before: tuple[str, ...], state: Path) -> None:
    for name in ("b1-cpu", "b2-cuda"):
        install(state, "llamacpp", name)
    assert sorted(offered(*before, "")) == ["b1-cpu", "b2-cuda"]
    assert offered(*before, "b2") == ["b2-cuda"]


def test_the_state_that_is_named_is_looked_at(state: Path, tmp_path: Path) -> None:
    install(tmp_path / "other", "llamacpp", "b9-cpu")
    assert offered("engine", "remove", "llamacpp", "--state", str(tmp_path / "other"), "") == ["b9-cpu"]


@pytest.mark.parametrize(
    "verb", ["runtime-start", "runtime-stop", "runtime-restart", "runtime-plan", "logs", "runtimes"]
)
def test_runtimes_are_those_of_the_config(verb: str, state: Path) -> None:
    assert offered(verb, "q") == ["qwen", "quick"]
    (state / "config.yaml").write_text("][")
    assert offered(verb, "") == []
