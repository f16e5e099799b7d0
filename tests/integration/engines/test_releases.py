"""Builds from the archives of a release: whole or nothing, from a server that breaks off, lies and is not there."""

import asyncio
import hashlib
import os
from pathlib import Path

import pytest

from core.api import Progress
from core.config.schema import Config, Engines, OwnProgram
from core.errors import DependencyError, LlmgwError
from engines.builds import MANIFEST
from engines.digests import file_names, give_digests, recipe_for
from engines.download import DownloadFailed, DownloadMismatch
from engines.install import find_build, install_build
from engines.judge import judge_runtimes
from engines.machine import read_machine
from engines.mirror import Mirror
from engines.plan import NoBuildFits, plan_build
from engines.recipe import Recipe, load_recipe, parse_recipe
from engines.release import ARCHIVES, ExecutableMissing
from engines.unpack import UnsafeArchive
from tests.integration.engines.archives import an_archive
from tests.integration.engines.file_server import serving
from tests.integration.engines.hub_server import HubServer

SERVER = b"#!/bin/sh\necho 'version: 1 (fake)'\n"
MAIN, LIBRARIES = "llama-b1.tar.gz", "cudart-llama-b1.tar.gz"


GOOD = {
    MAIN: an_archive(
        {"llama-b1/llama-server": SERVER, "llama-b1/libx.so.1": os.urandom(400_000)}, {"llama-b1/libx.so": "libx.so.1"}
    ),
    LIBRARIES: an_archive({"libcudart.so.12": os.urandom(100_000)}),
}


def a_recipe(url: str, digests: dict[str, str], *, executable: str = "llama-server") -> Recipe:
    platform = read_machine().platform
    recipe = parse_recipe(
        f"""
        engine = "fake"
        [[builds]]
        variant = "release"
        version = "1"
        platforms = ["{platform}"]
        glibc = "2.0"
        executable = "{executable}"
        release = {{ url = "https://example.org/", files = {{ {platform} = ["{MAIN}", "{LIBRARIES}"] }},
                     download_bytes = 1000000, unpacked_bytes = 2000000 }}
        verify = {{ arguments = ["--version"], expect = "version:" }}
    """.replace("\n                     ", " ")
    )
    return give_digests(recipe, digests, Mirror(url, "offline.mirror"))


def digests_of(files: dict[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}


async def install(state: Path, server: HubServer, digests: dict[str, str], executable: str = "llama-server") -> Path:
    recipe = a_recipe(server.address, digests, executable=executable)
    return (await install_build("fake", engines_dir=state, recipe=recipe)).executable


def left(state: Path) -> list[str]:
    """What lies beside the build, its lock and the note of which one is used."""
    known = ("1-release", ".lock", ".active.json")
    return sorted(entry.name for entry in (state / "fake").iterdir() if entry.name not in known)


@pytest.mark.parametrize("drop_every", [0, 100_000])
async def test_all_archives_become_one_build_however_often_the_server_breaks_off(
    drop_every: int, tmp_path: Path
) -> None:
    async with serving(HubServer(GOOD, drop_every=drop_every)) as server:
        executable = await install(tmp_path, server, digests_of(GOOD))

    folder = executable.parent
    assert os.access(executable, os.X_OK) and (folder / "libcudart.so.12").is_file()
    assert (folder / "libx.so").samefile(folder / "libx.so.1")
    assert find_build("fake", "", tmp_path) is not None and left(tmp_path) == []
    assert all(digest in (folder / MANIFEST).read_text() for digest in digests_of(GOOD).values())


async def test_the_program_is_found_where_the_archive_has_it(tmp_path: Path) -> None:
    files = {**GOOD, MAIN: an_archive({"build/bin/llama-server": SERVER, "build/lib.so": b"x"})}
    async with serving(HubServer(files)) as server:
        assert await install(tmp_path, server, digests_of(files)) == tmp_path / "fake/1-release/bin/llama-server"
        found = find_build("fake", "1-release", tmp_path)

    assert found is not None and found.executable.parent.name == "bin"


async def test_a_folder_of_this_machine_serves_as_well(tmp_path: Path) -> None:
    archives = tmp_path / "mirror/archives"
    archives.mkdir(parents=True)
    for name, data in GOOD.items():
        (archives / name).write_bytes(data)
    recipe = a_recipe(str(tmp_path / "mirror"), digests_of(GOOD))

    await install_build("fake", engines_dir=tmp_path / "state", recipe=recipe)
    assert left(tmp_path / "state") == [] and (archives / MAIN).is_file()

    (archives / LIBRARIES).write_bytes(GOOD[LIBRARIES] + b"!")
    with pytest.raises(DownloadMismatch, match="another digest"):
        await install_build("fake", engines_dir=tmp_path / "other", recipe=recipe)
    assert find_build("fake", "", tmp_path / "other") is None


HOSTILE: list[tuple[str, dict[str, bytes], type[LlmgwError]]] = [
    ("a link out", {MAIN: an_archive({"r/llama-server": SERVER}, {"r/x": "../../../etc/passwd"})}, UnsafeArchive),
    ("traversal", {MAIN: an_archive({"r/llama-server": SERVER, "r/../../x": b""})}, UnsafeArchive),
    ("a bomb", {MAIN: an_archive({"r/llama-server": SERVER, "r/x": bytes(3 << 20)})}, UnsafeArchive),
    ("no archive", {MAIN: b"<html>"}, UnsafeArchive),
    ("the same file twice", {LIBRARIES: an_archive({"llama-server": SERVER})}, UnsafeArchive),
    ("no program", {MAIN: an_archive({"r/x": b""})}, ExecutableMissing),
    ("two programs", {MAIN: an_archive({"a/llama-server": SERVER, "b/llama-server": SERVER})}, ExecutableMissing),
    ("a program that says nothing", {MAIN: an_archive({"r/llama-server": b"#!/bin/sh\n"})}, DependencyError),
]


@pytest.mark.parametrize(("files", "error"), [row[1:] for row in HOSTILE], ids=[row[0] for row in HOSTILE])
async def test_an_archive_that_is_no_build_leaves_nothing(
    files: dict[str, bytes], error: type[LlmgwError], tmp_path: Path
) -> None:
    files = {**GOOD, **files}
    async with serving(HubServer(files)) as server:
        with pytest.raises(error):
            await install(tmp_path, server, digests_of(files))

    assert find_build("fake", "", tmp_path) is None
    assert [name for name in left(tmp_path) if name != ARCHIVES] == []


async def test_what_came_is_kept_for_the_next_call_and_forgotten_when_the_build_is_made(tmp_path: Path) -> None:
    async with serving(HubServer({MAIN: GOOD[MAIN]})) as server:
        with pytest.raises(LlmgwError, match=LIBRARIES):
            await install(tmp_path, server, digests_of(GOOD))
    assert left(tmp_path) == [ARCHIVES]

    async with serving(HubServer(GOOD)) as server:
        await install(tmp_path, server, digests_of(GOOD))
        assert server.asked == [f"/archives/{LIBRARIES}"]
    assert left(tmp_path) == []


async def test_a_flipped_byte_and_a_server_that_is_away_are_told(tmp_path: Path) -> None:
    async with serving(HubServer({**GOOD, MAIN: GOOD[MAIN][:-1] + b"?"})) as server:
        with pytest.raises(DownloadMismatch):
            await install(tmp_path, server, digests_of(GOOD))
    with pytest.raises(DownloadFailed):
        await install(tmp_path, server, digests_of(GOOD))
    assert find_build("fake", "", tmp_path) is None


async def test_two_at_once_fetch_it_once(tmp_path: Path) -> None:
    steps: list[Progress] = []
    async with serving(HubServer(GOOD)) as server:
        recipe = a_recipe(server.address, digests_of(GOOD))
        builds = await asyncio.gather(
            *(install_build("fake", engines_dir=tmp_path, recipe=recipe, progress=steps.append) for _ in range(3))
        )
        assert len(server.asked) == 2
    assert len({build.executable for build in builds}) == 1


async def test_without_its_digests_nothing_is_fetched_and_the_reason_names_the_setting(tmp_path: Path) -> None:
    async with serving(HubServer(GOOD)) as server:
        with pytest.raises(NoBuildFits, match=rf"digest of {LIBRARIES} is not known: engines.fake.digests"):
            await install(tmp_path, server, {MAIN: digests_of(GOOD)[MAIN]})
        assert server.asked == []


def test_llama_cpps_own_release_becomes_a_build_of_this_machine() -> None:
    machine = read_machine()
    release = next(
        build for build in load_recipe("llamacpp").builds if build.release and build.computes == ("cpu",)
        and machine.platform in build.platforms
    )  # fmt: skip
    assert release.release is not None
    digests = {name: "0" * 64 for name in release.release.files[machine.platform]}
    own = Config(engines=Engines(llamacpp=OwnProgram(digests=digests, mirror="https://mirror.example.org/llama")))

    completed = recipe_for("llamacpp", own)

    assert release.name not in [one.name for one in plan_build(load_recipe("llamacpp"), machine).fitting]
    (found,) = [one for one in plan_build(completed, machine).fitting if one.name == release.name]
    assert found.release is not None and found.release.url == "https://mirror.example.org/llama/archives/"
    assert recipe_for("vllm", own) == load_recipe("vllm")
    assert own.engines.own_build("llamacpp") is None


@pytest.mark.parametrize(
    ("own", "problems"),
    [
        (OwnProgram(digests={file_names(load_recipe("llamacpp"))[0]: "0" * 64}, mirror="/srv/mirror"), []),
        (OwnProgram(digests={"llama-b11434-bin-ubuntu-x86.tar.gz": "0" * 64}), ["engines.llamacpp.digests"]),
        (OwnProgram(mirror="http://example.org/x/"), ["engines.llamacpp.mirror"]),
        (OwnProgram(mirror="https://me:secret@example.org/"), ["engines.llamacpp.mirror"]),
        (OwnProgram(mirror="example.org"), ["engines.llamacpp.mirror"]),
    ],
)
def test_what_is_wrong_with_digests_and_mirror_is_named(own: OwnProgram, problems: list[str]) -> None:
    found = judge_runtimes(Config(engines=Engines(llamacpp=own)))

    assert [problem.path for problem in found] == problems
    assert "secret" not in str(found)
