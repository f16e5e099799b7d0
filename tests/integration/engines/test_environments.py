"""Environments for engines, with the real pip: pinned, dated, moved into place, whole or not at all."""

import hashlib
import json
import subprocess
import zipfile
from pathlib import Path

import pytest

from engines.adapter import Build
from engines.builds import list_builds
from engines.dated_index import drop_later
from engines.environments import LOCK, parse_index
from engines.install import BuildBroken, install_build
from engines.packages import parse_packages
from engines.pypi import WheelMismatch, WheelMissing
from engines.recipe import BuildRecipe, Environment, Recipe, Verify
from tests.integration.engines.index import serving

MODULE = b"""
import helper

def main():
    print("engine 1.0 with helper", helper.VERSION)

if __name__ == "__main__":
    main()
"""


def put_wheel(folder: Path, name: str, version: str, module: bytes, *, needs: str = "", script: bool = False) -> str:
    """A wheel that pip installs. Returns its digest."""
    folder.mkdir(exist_ok=True)
    info = f"{name}-{version}.dist-info"
    path = folder / f"{name}-{version}-py3-none-any.whl"
    metadata = f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{name}.py", module)
        wheel.writestr(f"{info}/METADATA", metadata + "".join(f"Requires-Dist: {need}\n" for need in needs.split()))
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        if script:
            wheel.writestr(f"{info}/entry_points.txt", f"[console_scripts]\n{name}={name}:main\n")
        names = [member.filename for member in wheel.infolist()]
        wheel.writestr(f"{info}/RECORD", "".join(f"{member},,\n" for member in (*names, f"{info}/RECORD")))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def an_index(folder: Path, *, needs: str = "helper") -> str:
    put_wheel(folder, "helper", "1.0", b"VERSION = '1.0'\n")
    put_wheel(folder, "helper", "2.0", b"VERSION = '2.0'\n")
    return put_wheel(folder, "fake_engine", "1.0", MODULE, needs=needs, script=True)


UPLOADED = {
    "helper-1.0-py3-none-any.whl": "2026-01-01",
    "helper-2.0-py3-none-any.whl": "2026-03-01",
    "fake_engine-1.0-py3-none-any.whl": "2026-02-01",
}


def a_recipe(sha256: str, *, leave_out: list[str] | None = None, expect: str = "engine 1.0") -> Recipe:
    environment = Environment(
        name="fake-engine", version="1.0", sha256=[sha256], date="2026-02-02", python_min="3.0", python_max="3.99",
        leave_out=leave_out or [], download_bytes=1, unpacked_bytes=1,
    )  # fmt: skip
    build = BuildRecipe(
        version="1.0", variant="env", platforms=["linux-x86_64", "linux-aarch64"], glibc="2.0",
        executable="bin/python", python=environment, verify=Verify(arguments=["-m", "fake_engine"], expect=expect),
    )  # fmt: skip
    return Recipe(engine="fake", builds=[build])


async def install(tmp_path: Path, recipe: Recipe, index: str) -> Build:
    packages = parse_packages(index)
    return await install_build("fake", engines_dir=tmp_path / "state", packages=packages, recipe=recipe)


def run(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True, env={}).stdout.strip()


async def test_what_came_after_the_day_is_not_installed(tmp_path: Path) -> None:
    sha256 = an_index(tmp_path / "index")

    async with serving(tmp_path / "index", UPLOADED) as index:
        build = await install(tmp_path, a_recipe(sha256), index)

    assert run(str(build.executable), "-m", "fake_engine") == "engine 1.0 with helper 1.0"
    lock = (build.executable.parents[1] / LOCK).read_text()
    assert f"--hash=sha256:{sha256}" in lock and "helper==1.0 --hash=sha256:" in lock


async def test_a_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    sha256 = an_index(tmp_path / "index")

    build = await install(tmp_path, a_recipe(sha256), str(tmp_path / "index"))

    assert run(str(build.executable), "-m", "fake_engine") == "engine 1.0 with helper 2.0"


async def test_an_environment_works_where_it_was_moved_and_names_no_staging_folder(tmp_path: Path) -> None:
    sha256 = an_index(tmp_path / "index")
    build = await install(tmp_path, a_recipe(sha256), str(tmp_path / "index"))
    folder = build.executable.parents[1]

    assert run(str(folder / "bin/fake_engine")).startswith("engine 1.0")
    assert (folder / "bin/fake_engine").read_bytes().startswith(f"#!{folder}/bin/python".encode())
    texts = [path for path in (folder / "bin").iterdir() if path.is_file() and not path.is_symlink()]
    assert not [path for path in (*texts, folder / "pyvenv.cfg") if b".staging-" in path.read_bytes()]
    assert list(folder.rglob("fake_engine*.pyc"))
    assert {entry.name for entry in folder.parent.iterdir()} == {"1.0-env", ".lock", ".active.json"}


async def test_our_own_packages_are_not_taken_for_its(tmp_path: Path) -> None:
    """pip runs from our folder; what lies beside it (click, for instance) must not count as installed."""
    put_wheel(tmp_path / "index", "click", "99.0", b"VERSION = '99.0'\n")
    sha256 = an_index(tmp_path / "index", needs="helper click")

    build = await install(tmp_path, a_recipe(sha256), str(tmp_path / "index"))

    assert run(str(build.executable), "-I", "-c", "import click; print(click.VERSION)") == "99.0"


async def test_what_is_left_out_is_not_installed(tmp_path: Path) -> None:
    sha256 = an_index(tmp_path / "index")

    with pytest.raises(BuildBroken):
        await install(tmp_path, a_recipe(sha256, leave_out=["helper"]), str(tmp_path / "index"))

    assert list_builds("fake", tmp_path / "state") == []


async def test_another_wheel_than_the_pinned_one_is_refused(tmp_path: Path) -> None:
    an_index(tmp_path / "index")

    with pytest.raises(WheelMismatch):
        await install(tmp_path, a_recipe("0" * 64), str(tmp_path / "index"))

    assert list_builds("fake", tmp_path / "state") == []


async def test_a_requirement_that_nobody_has_is_one_clear_error(tmp_path: Path) -> None:
    sha256 = an_index(tmp_path / "index", needs="no-such-package-anywhere")

    with pytest.raises(WheelMissing):
        await install(tmp_path, a_recipe(sha256), str(tmp_path / "index"))


async def test_a_requirement_that_only_came_later_is_missing_on_that_day(tmp_path: Path) -> None:
    sha256 = an_index(tmp_path / "index", needs="helper==2.0")

    async with serving(tmp_path / "index", UPLOADED) as index:
        with pytest.raises(WheelMissing):
            await install(tmp_path, a_recipe(sha256), index)


async def test_the_index_of_pips_own_configuration_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sha256 = an_index(tmp_path / "index")
    monkeypatch.delenv("PIP_INDEX_URL", raising=False)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))

    async with serving(tmp_path / "index", UPLOADED) as index:
        (tmp_path / "pip.conf").write_text(f"[global]\nindex-url = {index}\n")
        build = await install(tmp_path, a_recipe(sha256), "")

    assert "helper 1.0" in run(str(build.executable), "-m", "fake_engine")


async def test_places_beside_the_index_in_pips_environment_stay_and_go_where_a_mirror_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sha256 = an_index(tmp_path / "index", needs="helper beside")
    put_wheel(tmp_path / "more", "beside", "1.0", b"")
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "more"))

    async with serving(tmp_path / "index", UPLOADED) as index:
        with pytest.raises(WheelMissing):
            await install(tmp_path, a_recipe(sha256), index)
        monkeypatch.setenv("PIP_INDEX_URL", index)
        build = await install(tmp_path, a_recipe(sha256), "")

    lock = (build.executable.parents[1] / LOCK).read_text()
    assert "beside==1.0" in lock and "helper==1.0" in lock


@pytest.mark.parametrize(
    ("listed", "index"),
    [
        ("", ""),
        ("global.cert='/c'\nglobal.extra-index-url='file:///x'\n", ""),
        ("global.index-url='https://a/simple?x=1'\n", "https://a/simple?x=1"),
        ("global.index-url='https://a'\ninstall.index-url='https://b'\n", "https://b"),
        (":env:.index-url='https://c'\nglobal.index-url='https://a'\ninstall.index-url='https://b'", "https://c"),
        ("garbage\n\0=\n", ""),
    ],
)
def test_pip_is_understood_when_it_lists_its_configuration(listed: str, index: str) -> None:
    assert parse_index(listed) == index


def a_page(**file: object) -> bytes:
    entry = {"filename": "a", "url": "../f/a.whl", "hashes": {}} | file
    return json.dumps({"name": "a", "versions": ["1"], "files": [entry]}).encode()


@pytest.mark.parametrize(
    ("uploaded", "kept"),
    [("2026-02-01T00:00:00Z", 1), ("2026-02-02T23:59:59.9Z", 1), ("2026-02-03T00:00:00Z", 0), (None, 1), ("", 1)],
)
def test_a_file_counts_until_the_end_of_the_day(uploaded: str | None, kept: int) -> None:
    page = json.loads(drop_later(a_page(**{"upload-time": uploaded}), "https://x/simple/a/", "2026-02-02"))

    assert len(page["files"]) == kept
    assert not kept or page["files"][0]["url"] == "https://x/simple/f/a.whl"
    assert "versions" not in page


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b"<html>", b'{"files": 1}', b"\xff"])
def test_what_is_no_page_of_an_index_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - json's and ours alike
        drop_later(text, "https://x/", "2026-01-01")
