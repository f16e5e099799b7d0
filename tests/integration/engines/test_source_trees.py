"""Builds from a source archive and an environment of what it asks for: whole or nothing, with the real pip."""

import asyncio
import hashlib
import os
import subprocess
from pathlib import Path

import msgspec
import pytest

from cli.app import main
from core.config.schema import Config, Engines, Offline, OwnTree
from core.errors import DependencyError, LlmgwError, NotFoundError
from core.process import run_process
from engines.adapter import Build
from engines.builds import find_build, list_builds, prune_builds, read_manifest, roll_back
from engines.check import check_help, help_command
from engines.digests import give_digests, recipe_for
from engines.download import DownloadMismatch
from engines.environments import LOCK
from engines.filling import fill_mirror
from engines.install import BuildBroken, install_build
from engines.judge import judge_runtimes
from engines.lock import RequirementsRefused
from engines.machine import read_machine
from engines.mirror import find_mirror, packages_for
from engines.packages import Packages
from engines.plan import NoBuildFits, VersionUnknown, plan_build, select_builds
from engines.pypi import WheelMissing
from engines.recipe import Recipe, load_recipe
from engines.registry import get_adapter
from engines.release import ARCHIVES
from engines.source_tree import RequirementsMissing
from engines.unpack import UnsafeArchive
from tests.integration.engines import test_environments as environments
from tests.integration.engines.archives import an_archive
from tests.integration.engines.file_server import serving
from tests.integration.engines.hub_server import HubServer
from tests.integration.engines.index import serving as serving_index
from tests.integration.engines.making import making
from tests.integration.engines.mirror_server import MirrorServer
from tests.integration.engines.trees import ARCHIVE, MAIN, a_tree, put_tree, tree_recipe

PATIENCE_S = 300.0
STEPS = ["download", "unpack", "resolve", "install", "compile", "verify"]
GOOD = a_tree()


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def an_index(folder: Path) -> Path:
    environments.put_wheel(folder, "helper", "1.0", b"VERSION = '1.0'\n")
    environments.put_wheel(folder, "helper", "2.0", b"VERSION = '2.0'\n")
    return folder


async def install(tmp_path: Path, archive: bytes = GOOD, *, sha256: str = "", also: str = "") -> Build:
    """From a server that has this archive, with wheels out of a folder."""
    async with serving(HubServer({ARCHIVE: archive})) as server:
        recipe = tree_recipe(sha256 or digest_of(archive), f"{server.address}/archives/{ARCHIVE}", also=also)
        packages = Packages(an_index(tmp_path / "index"))
        return await install_build("fake", engines_dir=tmp_path / "state", packages=packages, recipe=recipe)


def said(build: Build) -> str:
    assert build.folder is not None
    argv = [str(build.executable), str(build.folder / "main.py")]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True, env={}).stdout.strip()


def left(state: Path) -> list[str]:
    """What lies beside builds, the lock and the note of which one is used."""
    folder = state / "fake"
    known = {".lock", ".active.json", *(build.name for build in list_builds("fake", state))}
    return sorted(entry.name for entry in folder.iterdir() if entry.name not in known) if folder.is_dir() else []


async def test_the_tree_and_its_environment_become_one_build(tmp_path: Path) -> None:
    build = await install(tmp_path)
    folder = build.executable.parents[1]

    assert said(build) == "tree 1.0 with helper 2.0" and build.folder == folder / "source"
    manifest = read_manifest(folder)
    assert manifest is not None and manifest.sha256 == [digest_of(GOOD)] and ARCHIVE in manifest.source
    assert (folder / LOCK).read_text().startswith("helper==2.0 --hash=sha256:")
    found = find_build("fake", "", tmp_path / "state")
    assert found == build and found.folder == build.folder and left(tmp_path / "state") == []


async def test_what_is_compiled_names_the_final_place_and_what_was_tried_left_nothing_in_it(tmp_path: Path) -> None:
    build = await install(tmp_path)
    assert build.folder is not None

    compiled = [path.read_bytes() for path in build.folder.rglob("*.pyc")]
    assert len(compiled) == 2 and not [data for data in compiled if b".staging-" in data]
    assert str(build.folder / "part/__init__.py").encode() in b"".join(compiled)
    assert sorted(path.name for path in build.folder.iterdir() if path.name != "__pycache__") == [
        "main.py", "part", "requirements.txt",
    ]  # fmt: skip


async def test_nobody_but_the_owner_may_write_into_it_and_everybody_may_read(tmp_path: Path) -> None:
    build = await install(tmp_path)

    modes = [path.stat().st_mode & 0o777 for path in build.executable.parents[1].rglob("*") if not path.is_symlink()]
    assert not [oct(mode) for mode in modes if mode & 0o022 or mode & 0o444 != 0o444]


@pytest.mark.parametrize(("date", "helper"), [("2026-02-02", "1.0"), ("", "2.0")])
async def test_its_day_counts_and_without_one_today_does(date: str, helper: str, tmp_path: Path) -> None:
    put_tree(tmp_path)
    recipe = tree_recipe(digest_of(GOOD), str(tmp_path / ARCHIVE), date=date)

    async with serving_index(an_index(tmp_path / "index"), environments.UPLOADED) as index:
        packages = Packages(index=index)
        build = await install_build("fake", engines_dir=tmp_path / "state", packages=packages, recipe=recipe)

    assert said(build) == f"tree 1.0 with helper {helper}"


async def test_the_recipes_own_requirements_narrow_the_files(tmp_path: Path) -> None:
    assert said(await install(tmp_path, also='"helper==1.0"')) == "tree 1.0 with helper 1.0"
    (tmp_path / "other").mkdir()
    with pytest.raises(WheelMissing):
        await install(tmp_path / "other", also='"helper==3.0"')


def with_index(recipe: Recipe, index: str) -> Recipe:
    source = recipe.builds[0].source
    assert source is not None
    build = msgspec.structs.replace(recipe.builds[0], source=msgspec.structs.replace(source, index=index))
    return msgspec.structs.replace(recipe, builds=[build])


async def test_a_variants_own_wheels_come_from_its_own_index_unless_a_mirror_stands_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_tree(tmp_path)
    recipe = tree_recipe(digest_of(GOOD), str(tmp_path / ARCHIVE), also='"helper==1.0+cpu"')
    environments.put_wheel(tmp_path / "second", "helper", "1.0+cpu", b"VERSION = '1.0+cpu'\n")

    async with (
        serving_index(an_index(tmp_path / "index"), environments.UPLOADED) as index,
        serving_index(tmp_path / "second", {}) as second,
    ):
        monkeypatch.setenv("PIP_INDEX_URL", index)
        recipe = with_index(recipe, second)
        with pytest.raises(WheelMissing, match=r"has no helper 1\.0\+cpu, but 1\.0; Tree 1\.0 needs it"):
            await install_build("fake", engines_dir=tmp_path / "a", packages=Packages(index=index), recipe=recipe)
        build = await install_build("fake", engines_dir=tmp_path / "a", recipe=recipe)

    assert said(build) == "tree 1.0 with helper 1.0+cpu"


async def test_a_second_index_that_nobody_answers_for_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_tree(tmp_path)
    recipe = with_index(tree_recipe(digest_of(GOOD), str(tmp_path / ARCHIVE)), "http://127.0.0.1:9/cpu")

    async with serving_index(an_index(tmp_path / "index"), environments.UPLOADED) as index:
        monkeypatch.setenv("PIP_INDEX_URL", index)
        build = await install_build("fake", engines_dir=tmp_path / "state", recipe=recipe)

    assert said(build) == "tree 1.0 with helper 1.0"


async def test_it_comes_however_often_the_server_breaks_off(tmp_path: Path) -> None:
    archive = an_archive(
        {"t/main.py": MAIN, "t/requirements.txt": b"helper", "t/part.py": b"VERSION = '1.0'", "t/x": os.urandom(60_000)}
    )
    async with serving(HubServer({ARCHIVE: archive}, drop_every=10_000)) as server:
        recipe = tree_recipe(digest_of(archive), f"{server.address}/archives/{ARCHIVE}")
        packages = Packages(an_index(tmp_path / "index"))
        build = await install_build("fake", engines_dir=tmp_path / "state", packages=packages, recipe=recipe)

        assert len(server.asked) > 5 and build.folder is not None and (build.folder / "x").stat().st_size == 60_000


BROKEN: list[tuple[str, bytes, type[LlmgwError]]] = [
    ("a link out", an_archive({"t/main.py": MAIN}, {"t/x": "../../../etc/passwd"}), UnsafeArchive),
    ("traversal", an_archive({"t/main.py": MAIN, "t/../../x": b""}), UnsafeArchive),
    ("a bomb", an_archive({"t/main.py": MAIN, "t/x": bytes(200_000)}), UnsafeArchive),
    ("no archive", b"<html>", UnsafeArchive),
    ("no requirements", an_archive({"t/main.py": MAIN, "t/x": b""}), RequirementsMissing),
    ("requirements that are no text", a_tree(requirements=b"\xff\xfe"), RequirementsMissing),
    ("another index", a_tree(requirements=b"--index-url https://evil.example.org\n"), RequirementsRefused),
    ("an address", a_tree(requirements=b"helper @ https://evil.example.org/helper.whl\n"), RequirementsRefused),
    ("what nobody has", a_tree(requirements=b"no-such-package-anywhere\n"), WheelMissing),
    ("a program that fails", a_tree(main=b"import nosuch\n"), BuildBroken),
    ("a program that says another version", a_tree(main=b"print('tree 2.0')\n"), BuildBroken),
]


@pytest.mark.parametrize(("archive", "error"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
async def test_an_archive_that_is_no_build_leaves_nothing(
    archive: bytes, error: type[DependencyError], tmp_path: Path
) -> None:
    with pytest.raises(error):
        await install(tmp_path, archive)

    assert list_builds("fake", tmp_path / "state") == []
    assert set(left(tmp_path / "state")) <= {ARCHIVES, ".pip-cache"}


async def test_another_archive_than_the_one_of_the_digest_is_not_unpacked(tmp_path: Path) -> None:
    with pytest.raises(DownloadMismatch):
        await install(tmp_path, a_tree(version="6.6"), sha256=digest_of(GOOD))

    assert not list((tmp_path / "state").rglob("main.py"))


@pytest.mark.parametrize("step", STEPS)
async def test_a_sigkill_at_any_step_leaves_nothing_or_all_and_the_next_call_finishes(
    step: str, tmp_path: Path
) -> None:
    sha256 = put_tree(an_index(tmp_path / "index"))
    state = tmp_path / "state"
    async with making("tree", state, tmp_path / "index", sha256) as process:
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            async for line in process.stdout:
                if line.decode().strip() == step:
                    process.kill()
                    break
            else:
                pytest.fail(f"it ended without the step {step}")
            await process.wait()
    killed = find_build("fake", "", state)
    assert killed is None or said(killed) == "tree 1.0 with helper 2.0"

    recipe = tree_recipe(sha256, str(tmp_path / "index" / ARCHIVE))
    packages = Packages(tmp_path / "index")
    builds = await asyncio.gather(
        *(install_build("fake", engines_dir=state, packages=packages, recipe=recipe) for _ in range(2))
    )

    assert builds[0] == builds[1] and said(builds[0]) == "tree 1.0 with helper 2.0" and left(state) == []


async def test_what_came_is_not_fetched_again(tmp_path: Path) -> None:
    async with serving(HubServer({ARCHIVE: GOOD})) as server:
        recipe = tree_recipe(digest_of(GOOD), f"{server.address}/archives/{ARCHIVE}")
        (tmp_path / "index").mkdir()
        with pytest.raises(WheelMissing):
            await install_build("fake", engines_dir=tmp_path, packages=Packages(tmp_path / "index"), recipe=recipe)
        packages = Packages(an_index(tmp_path / "index"))
        await install_build("fake", engines_dir=tmp_path, packages=packages, recipe=recipe)

        assert len(server.asked) == 1


def two_versions(folder: Path) -> tuple[Recipe, Config]:
    """A mirror with the recipe's version and one that it does not know; both digests are given."""
    an_index(folder / "pypi")
    archives = folder / "archives"
    archives.mkdir()
    newer = a_tree(version="2.0")
    (archives / ARCHIVE).write_bytes(GOOD)
    (archives / "Tree-2.0.tar.gz").write_bytes(newer)
    config = Config(offline=Offline(mirror=str(folder)))
    digests = {ARCHIVE: digest_of(GOOD), "Tree-2.0.tar.gz": digest_of(newer)}
    recipe = tree_recipe("", "https://example.org/Tree-1.0.tar.gz")
    return give_digests(recipe, digests, find_mirror("fake", config)), config


async def test_a_digest_of_another_version_makes_a_build_that_can_be_gone_back_from(tmp_path: Path) -> None:
    (tmp_path / "mirror").mkdir()
    recipe, config = two_versions(tmp_path / "mirror")
    state, packages = tmp_path / "state", packages_for("fake", config)

    old = await install_build("fake", engines_dir=state, packages=packages, recipe=recipe, version="1.0")
    new = await install_build("fake", engines_dir=state, packages=packages, recipe=recipe, version="2.0")

    assert [said(build) for build in (old, new)] == ["tree 1.0 with helper 2.0", "tree 2.0 with helper 2.0"]
    assert find_build("fake", "", state) == new
    assert (await roll_back("fake", state)).name == "1.0-cpu" and find_build("fake", "", state) == old
    assert await prune_builds("fake", state, ()) == []
    (state / "fake/.active.json").write_text('{"active": "1.0-cpu"}')
    assert await prune_builds("fake", state, ()) == ["2.0-cpu"] and not new.executable.exists()


async def test_a_mirror_that_was_filled_makes_it_without_a_network(tmp_path: Path) -> None:
    tree, state = tmp_path / "mirror", tmp_path / "state"
    async with serving(HubServer({ARCHIVE: GOOD})) as server:
        recipe = tree_recipe(digest_of(GOOD), f"{server.address}/archives/{ARCHIVE}")
        async with serving_index(an_index(tmp_path / "index"), environments.UPLOADED) as index:
            packages = Packages(index=index)
            (filled,) = await fill_mirror(
                recipe, tree, packages=packages, machine=read_machine(), progress=lambda event: None
            )

    assert filled.problem == "" and filled.files[:-1] == (f"archives/{ARCHIVE}", "pypi/helper-1.0-py3-none-any.whl")
    assert filled.files[-1].startswith("pypi/Tree-1.0-cpu-")
    environments.put_wheel(tree / "pypi", "helper", "3.0", b"VERSION = '3.0'\n")
    async with serving(MirrorServer(tree, lists=False)) as there:
        for place in (str(tree), there.address):
            config = Config(offline=Offline(mirror=place))
            completed = give_digests(recipe, {ARCHIVE: digest_of(GOOD)}, find_mirror("fake", config))
            build = await install_build(
                "fake", engines_dir=state / place[-5:], packages=packages_for("fake", config), recipe=completed
            )
            assert said(build) == "tree 1.0 with helper 1.0"


async def test_an_archive_that_lies_in_a_mirror_already_is_judged_before_it_is_unpacked(tmp_path: Path) -> None:
    tree = tmp_path / "mirror"
    (tree / "archives").mkdir(parents=True)
    (tree / "archives" / ARCHIVE).write_bytes(a_tree(version="6.6"))
    recipe = tree_recipe(digest_of(GOOD), "https://example.org/Tree-1.0.tar.gz")

    (filled,) = await fill_mirror(
        recipe,
        tree,
        packages=Packages(an_index(tmp_path / "index")),
        machine=read_machine(),
        progress=lambda event: None,
    )

    assert filled.files == () and "another digest" in filled.problem and not list((tree / "pypi").glob("*.whl"))


async def test_without_its_digest_nothing_is_fetched_and_how_to_find_it_is_said(tmp_path: Path) -> None:
    recipe = give_digests(tree_recipe("", "https://example.org/Tree-1.0.tar.gz"), {})

    with pytest.raises(NoBuildFits, match=r"engines\.fake\.digests takes it \(sha256sum of https://example\.org/Tree"):
        await install_build("fake", engines_dir=tmp_path, recipe=recipe)
    with pytest.raises(VersionUnknown) as caught:
        select_builds(recipe, "2.0")

    assert "engines.fake.digests" in caught.value.hint and list(tmp_path.iterdir()) == []


async def test_an_archive_that_is_not_there_is_told(tmp_path: Path) -> None:
    recipe = tree_recipe(digest_of(GOOD), str(tmp_path / "none.tar.gz"))

    with pytest.raises(NotFoundError) as caught:
        await install_build("fake", engines_dir=tmp_path / "state", recipe=recipe)

    assert caught.value.code == "archive_missing"


async def test_its_help_is_asked_of_the_tree(tmp_path: Path) -> None:
    build = await install(tmp_path)
    adapter = get_adapter("comfyui")

    argv, environment = help_command(adapter, build)
    text = (await run_process(argv, timeout_s=60.0, env=environment)).stdout.decode()

    lacking = [finding.check for finding in check_help(adapter, text) if finding.status != "ok"]
    assert "flag --cpu" in lacking and "flag --listen" not in lacking


async def test_engine_check_looks_at_the_tree_in_use_and_starts_it_on_no_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build = await install(tmp_path)
    config = tmp_path / "config.yaml"
    config.write_text(f"engines: {{comfyui: {{dir: {build.folder}, python: {build.executable}}}}}\n")
    common = ["--config", str(config), "--state", str(tmp_path / "none")]

    assert await asyncio.to_thread(main, ["engine-check", "comfyui", *common]) == 9
    assert "flag --cpu: the engine no longer has --cpu" in capsys.readouterr().out
    assert await asyncio.to_thread(main, ["engine-check", "comfyui", "--model", "/srv/x", *common]) == 2
    assert "does not chat" in capsys.readouterr().err


DIGESTS = {"ComfyUI-0.3.64.tar.gz": "0" * 64, "ComfyUI-0.40.0.tar.gz": "1" * 64}
COMFYUI = Config(engines=Engines(comfyui=OwnTree(digests=DIGESTS)))


def test_comfyuis_archives_become_builds_of_this_machine_the_newest_first() -> None:
    fitting = plan_build(recipe_for("comfyui", COMFYUI), read_machine()).fitting

    assert [build.name for build in fitting] in ([], ["0.40.0-cpu", "0.3.64-cpu"])
    for build in recipe_for("comfyui", COMFYUI).builds:
        assert build.source is not None and build.source.url.endswith(f"/v{build.version}.tar.gz")
        assert build.verify.expect == f"ComfyUI version: {build.version}"
        assert bool(build.source.date) is (build.version == "0.3.64")
    assert COMFYUI.engines.own_build("comfyui") is None


@pytest.mark.parametrize(
    ("name", "is_known"),
    [
        ("ComfyUI-0.3.64.tar.gz", True), ("ComfyUI-0.40.0.tar.gz", True), ("ComfyUI-1.tar.gz", True),
        ("ComfyUI-.tar.gz", False), ("ComfyUI-0.3.64.zip", False), ("comfyui-0.3.64.tar.gz", False),
        ("ComfyUI-../x.tar.gz", False), ("v0.3.64.tar.gz", False), ("ComfyUI-a b.tar.gz", False),
    ],
)  # fmt: skip
def test_a_digest_of_what_no_build_is_made_of_is_named(name: str, is_known: bool) -> None:
    found = judge_runtimes(Config(engines=Engines(comfyui=OwnTree(digests={name: "0" * 64}))))

    assert [problem.path for problem in found] == ([] if is_known else ["engines.comfyui.digests"])
    assert len(load_recipe("comfyui").builds) == 3
