"""The installer with the real pip, against wheels in a local folder: whole or nothing, whatever happens."""

import asyncio
import hashlib
import os
import random
import resource
import subprocess
import zipfile
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path

import pytest

from core.api import Progress
from core.errors import ConfigError, DependencyError, LlmgwError, NotFoundError
from core.files import StorageError
from engines.install import BuildBroken, find_build, install_build, list_builds
from engines.packages import Packages
from engines.pypi import WheelMismatch, WheelMissing
from engines.unpack import UnsafeArchive
from tests.integration.engines.making import making
from tests.integration.engines.wheels import MadeWheel, make_engine, make_recipe, make_wheel

BALLAST_BYTES = 24 << 20


async def install(state: Path, wheel: MadeWheel, steps: list[str] | None = None) -> Path:
    def report(event: Progress) -> None:
        if steps is not None and event.step not in steps:
            steps.append(event.step)

    recipe = make_recipe(wheel.sha256)
    build = await install_build(
        "fake", engines_dir=state, packages=Packages(wheel.path.parent), recipe=recipe, progress=report
    )
    return build.executable


def leftovers(state: Path) -> list[str]:
    """Everything below the engine's folder that is neither the build nor what says which one is used."""
    return [
        entry.name for entry in (state / "fake").iterdir() if entry.name not in ("1.0-wheel", ".lock", ".active.json")
    ]


def assert_whole(state: Path, wheel: MadeWheel) -> None:
    with zipfile.ZipFile(wheel.path) as archive:
        for name in ("bin/server", "bin/ballast.so"):
            there = hashlib.sha256((state / "fake/1.0-wheel" / name).read_bytes()).digest()
            assert there == hashlib.sha256(archive.read(f"fake_engine/{name}")).digest()


async def test_a_build_is_fetched_verified_and_found_again(tmp_path: Path) -> None:
    wheel = make_engine(tmp_path / "index")
    steps: list[str] = []

    executable = await install(tmp_path / "state", wheel, steps)

    assert steps == ["download", "unpack", "verify", "installed"]
    assert os.access(executable, os.X_OK)
    found = find_build("fake", "", tmp_path / "state")
    assert found is not None and found.executable == executable and found.name == "1.0-wheel"
    assert find_build("fake", "1.0-wheel", tmp_path / "state") == found
    assert leftovers(tmp_path / "state") == []


async def test_what_is_installed_needs_no_index_any_more(tmp_path: Path) -> None:
    wheel = make_engine(tmp_path / "index")
    first = await install(tmp_path / "state", wheel)
    wheel.path.unlink()

    assert await install(tmp_path / "state", wheel) == first


async def test_everybody_may_read_and_run_a_build_made_under_a_strict_umask(tmp_path: Path) -> None:
    wheel = make_engine(tmp_path / "index")
    before = os.umask(0o077)
    try:
        executable = await install(tmp_path / "state", wheel)
    finally:
        os.umask(before)

    for path in (executable.parent, executable.parent.parent, executable.parent.parent.parent):
        assert path.stat().st_mode & 0o055 == 0o055
    assert executable.stat().st_mode & 0o777 == 0o755
    assert (executable.parent.parent / "build.json").stat().st_mode & 0o044 == 0o044


async def test_two_at_once_in_one_process_fetch_once(tmp_path: Path) -> None:
    wheel = make_engine(tmp_path / "index")
    steps: list[str] = []

    def count(event: Progress) -> None:
        steps.append(event.step)

    recipe = make_recipe(wheel.sha256)
    arguments = {"engines_dir": tmp_path / "state", "packages": Packages(wheel.path.parent)}
    await asyncio.gather(
        *(install_build("fake", recipe=recipe, progress=count, **arguments) for _ in range(3))  # type: ignore[arg-type]
    )

    assert steps.count("unpack") == 1
    assert steps.count("installed") == 3


def installer(state: Path, wheel: MadeWheel) -> AbstractAsyncContextManager[asyncio.subprocess.Process]:
    return making("engine", state, wheel.path.parent, wheel.sha256)


async def test_two_processes_at_once_both_end_with_the_build(tmp_path: Path) -> None:
    wheel = make_engine(tmp_path / "index", ballast_bytes=BALLAST_BYTES)

    async with installer(tmp_path / "state", wheel) as one, installer(tmp_path / "state", wheel) as two:
        outputs = [await process.communicate() for process in (one, two)]

    assert [output[0].split()[-2:] for output in outputs] == [[b"done", b"1.0-wheel"]] * 2
    assert sum(b"unpack" in output[0] for output in outputs) == 1
    assert_whole(tmp_path / "state", wheel)


@pytest.mark.parametrize("step", ["download", "unpack", "verify"])
async def test_a_sigkill_at_any_step_leaves_nothing_or_all_and_the_next_call_finishes(
    step: str, tmp_path: Path
) -> None:
    wheel = make_engine(tmp_path / "index", ballast_bytes=BALLAST_BYTES)
    async with installer(tmp_path / "state", wheel) as process:
        assert process.stdout is not None
        async for line in process.stdout:
            if line.split()[:1] == [step.encode()]:
                break
        process.kill()
        await process.wait()

    if find_build("fake", "", tmp_path / "state") is not None:
        assert_whole(tmp_path / "state", wheel)
    await install(tmp_path / "state", wheel)
    assert_whole(tmp_path / "state", wheel)
    assert leftovers(tmp_path / "state") == []


async def test_sigkills_at_random_moments_leave_nothing_or_all(tmp_path: Path) -> None:
    wheel = make_engine(tmp_path / "index", ballast_bytes=BALLAST_BYTES)
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # shown when the test fails
    dice = random.Random(seed)

    for _ in range(6):
        async with installer(tmp_path / "state", wheel) as process:
            try:
                async with asyncio.timeout(dice.uniform(0.2, 1.6)):
                    await process.wait()
            except TimeoutError:
                process.kill()
        build = find_build("fake", "", tmp_path / "state")
        if build is not None:
            assert_whole(tmp_path / "state", wheel)

    await install(tmp_path / "state", wheel)
    assert_whole(tmp_path / "state", wheel)
    assert leftovers(tmp_path / "state") == []


async def test_a_cancelled_installation_leaves_nothing_and_holds_no_lock(tmp_path: Path) -> None:
    wheel = make_engine(tmp_path / "index", ballast_bytes=BALLAST_BYTES)
    unpacking = asyncio.Event()

    def report(event: Progress) -> None:
        if event.step == "unpack":
            unpacking.set()

    task = asyncio.ensure_future(
        install_build(
            "fake",
            engines_dir=tmp_path / "state",
            packages=Packages(wheel.path.parent),
            recipe=make_recipe(wheel.sha256),
            progress=report,
        )
    )
    await unpacking.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert leftovers(tmp_path / "state") == []
    await install(tmp_path / "state", wheel)
    assert_whole(tmp_path / "state", wheel)


async def test_a_flipped_byte_is_refused_before_anything_is_unpacked(tmp_path: Path) -> None:
    wheel = make_engine(tmp_path / "index", ballast_bytes=1000)
    data = bytearray(wheel.path.read_bytes())
    data[300] ^= 1
    wheel.path.write_bytes(data)

    with pytest.raises(WheelMismatch) as caught:
        await install(tmp_path / "state", wheel)

    assert "sha256" in caught.value.message and caught.value.hint
    assert leftovers(tmp_path / "state") == []
    assert find_build("fake", "", tmp_path / "state") is None


async def test_an_index_without_the_wheel_is_one_clear_error(tmp_path: Path) -> None:
    wheel = make_engine(tmp_path / "index")
    wheel.path.unlink()

    with pytest.raises(WheelMissing) as caught:
        await install(tmp_path / "state", wheel)

    assert str(tmp_path / "index") in caught.value.message
    assert leftovers(tmp_path / "state") == []


async def test_an_index_that_cannot_be_reached_is_one_clear_error(tmp_path: Path) -> None:
    wheel = make_engine(tmp_path / "index")
    index = Packages(index="https://127.0.0.1:1/simple")

    with pytest.raises(WheelMissing) as caught:
        await install_build("fake", engines_dir=tmp_path / "state", packages=index, recipe=make_recipe(wheel.sha256))

    assert "cannot be reached" in caught.value.message
    assert "engines.mirror" in caught.value.hint


async def test_a_mirror_that_does_not_exist_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        nowhere = Packages(tmp_path / "nowhere")
        await install_build("fake", engines_dir=tmp_path, packages=nowhere, recipe=make_recipe("0" * 64))

    assert caught.value.code == "mirror_missing"


HOSTILE = {
    "traversal": "fake_engine/../../../../tmp/llmgw-evil",
    "absolute": "/tmp/llmgw-evil",
    "in another folder": "other/../../llmgw-evil",
}


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE.keys())
async def test_a_hostile_wheel_with_the_right_digest_is_still_refused(name: str, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "index", "fake_engine", {"fake_engine/bin/server": b"#!/bin/sh\n", name: b"evil"})

    with pytest.raises((UnsafeArchive, WheelMissing)):
        await install(tmp_path / "state", wheel)

    assert not Path("/tmp/llmgw-evil").exists()
    assert find_build("fake", "", tmp_path / "state") is None


async def test_a_wheel_with_a_symlink_is_refused(tmp_path: Path) -> None:
    wheel = make_engine(tmp_path / "index")
    with zipfile.ZipFile(wheel.path, "a") as archive:
        link = zipfile.ZipInfo("fake_engine/bin/out")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc")
    digest = hashlib.sha256(wheel.path.read_bytes()).hexdigest()

    with pytest.raises(UnsafeArchive, match="link"):
        await install(tmp_path / "state", MadeWheel(wheel.path, digest))


BROKEN = {
    "exits badly": ("#!/bin/sh\necho no >&2\nexit 3\n", "does not run here"),
    "says something else": ("#!/bin/sh\necho hello\n", "did not say"),
    "lacks a library": (
        "#!/bin/sh\necho 'x: libnone.so.1: cannot open shared object file: No such file' >&2; exit 127\n",
        "needs libnone.so.1",
    ),
    "needs another processor": ("#!/bin/sh\nkill -ILL $$\n", "SIGILL"),
    "is no program": ("\x7fELF garbage", "does not run here"),
    "has no interpreter": ("#!/nonexistent/sh\n", "does not run here"),
}


@pytest.mark.parametrize(("server", "said"), BROKEN.values(), ids=BROKEN.keys())
async def test_a_build_that_does_not_run_is_never_published(server: str, said: str, tmp_path: Path) -> None:
    wheel = make_engine(tmp_path / "index", server=server)

    with pytest.raises(BuildBroken, match=said):
        await install(tmp_path / "state", wheel)

    assert leftovers(tmp_path / "state") == []


async def test_a_missing_library_comes_with_the_package_that_has_it(tmp_path: Path) -> None:
    wheel = make_engine(tmp_path / "index", server=BROKEN["lacks a library"][0])

    with pytest.raises(BuildBroken) as caught:
        await install(tmp_path / "state", wheel)

    assert caught.value.hint == "apt-get install libnone1"


async def test_a_folder_without_a_manifest_is_no_build_and_is_replaced(tmp_path: Path) -> None:
    wheel = make_engine(tmp_path / "index")
    broken = tmp_path / "state/fake/1.0-wheel"
    broken.mkdir(parents=True)
    (broken / "junk").write_text("x")

    assert find_build("fake", "1.0-wheel", tmp_path / "state") is None
    await install(tmp_path / "state", wheel)

    assert not (broken / "junk").exists()
    assert find_build("fake", "1.0-wheel", tmp_path / "state") is not None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"engine":"fake"}', "\x00", '{"name":"other"}'])
def test_a_damaged_manifest_is_no_build(text: str, tmp_path: Path) -> None:
    folder = tmp_path / "fake/1.0-wheel"
    folder.mkdir(parents=True)
    (folder / "build.json").write_text(text)

    assert list_builds("fake", tmp_path) == []


@pytest.mark.parametrize("wanted", ["..", "../../etc", ".staging-1", "a/b", "x\x00", "no-such"])
def test_a_build_that_was_never_installed_is_none_whatever_its_name(wanted: str, tmp_path: Path) -> None:
    assert find_build("fake", wanted, tmp_path) is None


def test_an_executable_of_the_operators_own_is_used_as_it_is(tmp_path: Path) -> None:
    build = find_build("llamacpp", "/bin/true", tmp_path)

    assert build is not None and build.executable == Path("/bin/true")
    (tmp_path / "text").write_text("no program")
    for missing in ("/nonexistent/llama-server", "/etc", str(tmp_path / "text")):
        with pytest.raises(NotFoundError):
            find_build("llamacpp", missing, tmp_path)


@contextmanager
def small_disk(path: Path, size_mib: int) -> Iterator[Path]:
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "llmgw-test", str(path)], check=True, timeout=10)
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True, timeout=10)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts a tmpfs: run as root (sudo make test)")


@pytest.mark.root
@needs_root
async def test_a_disk_that_is_too_small_is_said_before_the_download(tmp_path: Path) -> None:
    wheel = make_engine(tmp_path / "index")

    with small_disk(tmp_path / "disk", 100) as disk, pytest.raises(StorageError) as caught:
        await install(disk, wheel)

    assert caught.value.code == "disk_full"
    assert "MiB" in caught.value.message and caught.value.hint


async def test_a_write_that_fails_midway_is_one_clear_error_and_leaves_nothing(tmp_path: Path) -> None:
    """A limit on file sizes stands for any write error: it needs no root and strikes within pip or our unpacking."""
    wheel = make_engine(tmp_path / "index", ballast_bytes=BALLAST_BYTES)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        with pytest.raises(LlmgwError) as caught:
            await install(tmp_path / "state", wheel)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert isinstance(caught.value, DependencyError)
    assert caught.value.code in ("disk_full", "storage_failed")
    assert leftovers(tmp_path / "state") == []
    await install(tmp_path / "state", wheel)
    assert_whole(tmp_path / "state", wheel)
