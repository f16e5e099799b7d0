"""What engine-check found stays with a build, and a build that failed is used by nobody."""

import json
import sys
from pathlib import Path

import msgspec
import pytest

from cli.app import main
from core import VERSION
from core.engines import BuildCheck
from core.hardware import Card, Finding
from core.paths import Layout
from engines.adapter import Build, EngineSpec, NodeFacts
from engines.builds import find_build, read_build
from engines.card_trial import try_on_card
from engines.checked import BuildFailedCheck, keep_check, read_check
from engines.install import install_build
from engines.packages import Packages
from engines.registry import get_adapter
from tests.integration.engines.test_builds import install, recipe_of, used
from tests.integration.engines.wheels import SERVER

FAKE = Path(__file__).parents[2] / "fakes" / "vllm_python.py"
FAILED = BuildCheck(
    ok=False, at="2026-11-01T00:00:00+00:00", llmgw_version=VERSION, engine_version="v",
    findings=[Finding(check="answer", status="blocks", found="it says nothing")],
)  # fmt: skip


async def two_builds(tmp_path: Path) -> Path:
    """`v-old` and `v-new`, of which the latter is in use; the folder of the builds."""
    recipe = recipe_of(tmp_path / "index", {"v-old": SERVER, "v-new": SERVER})
    for name in ("v-old", "v-new"):
        await install(tmp_path, recipe, name)
    return tmp_path / "state" / "fake"


async def test_a_build_that_failed_is_not_used_and_the_next_one_is(tmp_path: Path) -> None:
    folder = await two_builds(tmp_path)
    assert used(tmp_path) == "v-new"

    keep_check(folder / "v-new", FAILED)

    assert used(tmp_path) == "v-old"
    with pytest.raises(BuildFailedCheck) as caught:
        find_build("fake", "v-new", tmp_path / "state")
    assert "it says nothing" in caught.value.message


async def test_an_installation_takes_the_next_build_when_the_best_failed(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path / "index", {"v-new": SERVER, "v-old": SERVER})
    folder = tmp_path / "state" / "fake"
    assert await install(tmp_path, recipe) == "v-new"

    keep_check(folder / "v-new", FAILED)
    build = await install_build(
        "fake", engines_dir=tmp_path / "state", packages=Packages(tmp_path / "index"), recipe=recipe
    )

    assert build.name == "v-old"
    assert used(tmp_path) == "v-old"


@pytest.mark.parametrize("change", [{"ok": True}, {"llmgw_version": "0.0.1"}, {"engine_version": "other"}], ids=str)
async def test_a_check_that_is_good_or_of_another_version_is_no_obstacle(
    tmp_path: Path, change: dict[str, object]
) -> None:
    folder = await two_builds(tmp_path)

    keep_check(folder / "v-new", msgspec.structs.replace(FAILED, **change))

    assert used(tmp_path) == "v-new"


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"\xff", b'{"ok":false}', b'{"ok":1,"at":[]}', b"[" * 100_000])
async def test_a_broken_record_is_none(tmp_path: Path, text: bytes) -> None:
    folder = await two_builds(tmp_path)
    (folder / "v-new/check.json").write_bytes(text)

    assert read_check(folder / "v-new") is None
    assert used(tmp_path) == "v-new"


@pytest.mark.parametrize("takes", [True, False, None])
async def test_whether_it_takes_uuids_is_what_was_found(tmp_path: Path, takes: bool | None) -> None:
    folder = await two_builds(tmp_path)

    keep_check(folder / "v-new", msgspec.structs.replace(FAILED, ok=True, takes_uuids=takes))

    build = read_build(folder / "v-new")
    assert build is not None
    assert build.takes_uuids == (takes is not False)


async def test_an_engine_that_reads_numbers_only_is_found_out_on_a_card(tmp_path: Path) -> None:
    vllm = a_vllm(tmp_path, reads="numbers only")
    facts = NodeFacts(2, 4096, (Card(uuid="GPU-1", name="x", index=3), Card(uuid="MIG-1", name="x", parent="GPU-1")))

    findings, takes = await try_on_card(get_adapter("vllm"), a_spec("GPU-1"), vllm, facts)
    of_mig, takes_mig = await try_on_card(get_adapter("vllm"), a_spec("MIG-1"), vllm, facts)

    assert takes is False
    assert {one.check: one.status for one in findings}["uuid"] == "warning", findings
    assert takes_mig is None
    assert "invalid literal" in of_mig[0].found


async def test_an_engine_that_reads_uuids_is_seen_to(tmp_path: Path) -> None:
    vllm = a_vllm(tmp_path, reads="uuids")

    findings, takes = await try_on_card(
        get_adapter("vllm"), a_spec("MIG-1"), vllm, NodeFacts(2, 4096, (Card(uuid="MIG-1", name="x"),))
    )

    assert takes is True, findings


def a_spec(device: str) -> EngineSpec:
    return EngineSpec("check", "vllm", ("check",), 1, weights=Path("/srv/m"), max_concurrency=2, devices=(device,))


def a_vllm(tmp_path: Path, *, reads: str) -> Build:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f"#!{sys.executable}\n{FAKE.read_text()}")
    python.chmod(0o755)
    (python.parent / "reads").write_text(reads)
    return Build("vllm", "v-b", "1", python)


def test_the_command_keeps_what_it_found_and_shows_that_the_build_is_not_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A build whose own help lacks every flag that llmgw uses."""
    folder = Layout.under(tmp_path / "state").engines / "llamacpp" / "mine"
    folder.mkdir(parents=True)
    server = folder / "llama-server"
    server.write_text("#!/bin/sh\necho '--help  say this'\necho '--host HOST  listen there'\n")
    server.chmod(0o755)
    manifest = {
        "engine": "llamacpp",
        "name": "mine",
        "version": "1",
        "executable": "llama-server",
        "source": "",
        "sha256": [],
    }
    (folder / "build.json").write_text(json.dumps(manifest))
    arguments = ["engine-check", "llamacpp", "--json", "--state", str(tmp_path / "state")]

    assert main([*arguments, "--build", "mine"]) == 9
    report = json.loads(capsys.readouterr().out)
    check = read_check(folder)

    assert report["kept"] and not report["ok"]
    assert check is not None and not check.ok and not check.tried and check.engine_version == "1"
    assert main(arguments) == 4  # it is not used any more, and there is no other
    assert "no build that is used" in capsys.readouterr().out
