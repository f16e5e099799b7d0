"""Changes in a folder, from the real kernel."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from core.files import StorageError, write_atomic
from core.inotify import Change, Event, parse_events, watch_directory
from daemon.config_watch import Writers, watch_config
from tests.patience import SOON_S


async def test_a_rename_over_a_file_is_heard(tmp_path: Path) -> None:
    watch = watch_directory(tmp_path)
    first = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0)
    write_atomic(tmp_path / "config.yaml", "a: 1")
    seen = await first
    while Event("config.yaml", Change.REPLACED) not in seen:
        seen += await anext(watch)
    await watch.aclose()  # type: ignore[attr-defined]


async def test_a_folder_that_is_not_there_cannot_be_watched(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="nowhere"):
        await anext(watch_directory(tmp_path / "nowhere"))


async def test_a_burst_of_changes_is_one_call_and_other_files_are_none(tmp_path: Path) -> None:
    calls: list[int] = []
    called = asyncio.Event()

    def changed() -> None:
        calls.append(1)
        called.set()

    task = asyncio.create_task(watch_config(tmp_path, {"config.yaml"}, changed))
    await asyncio.sleep(0)
    (tmp_path / "other").write_text("x")
    for number in range(5):
        (tmp_path / "config.yaml").write_text(str(number))
    await called.wait()
    task.cancel()
    assert calls == [1]


def test_events_are_parsed_with_their_padding() -> None:
    event = b"\1\0\0\0" + b"\x80\0\0\0" + b"\0\0\0\0" + b"\x10\0\0\0" + b"config.yaml".ljust(16, b"\0")
    assert parse_events(event * 2) == [Event("config.yaml", Change.REPLACED)] * 2
    assert parse_events(b"\xff\xff\xff\xff" + b"\0\x40\0\0" + bytes(8)) == [Event("", Change.LOST)]
    assert parse_events(b"\1\0\0\0" + b"\0\x80\0\0" + bytes(8)) == [], "the folder is no longer watched"
    assert parse_events(b"") == []
    assert parse_events(os.urandom(7)) == []


NAMES = {"config.yaml", "environment"}


@asynccontextmanager
async def heard(folder: Path, names: set[str], calls: list[str]) -> AsyncIterator[asyncio.Event]:
    """Watch; the event is set when a call came, which read the config."""
    called = asyncio.Event()

    def changed() -> None:
        calls.append((folder / "config.yaml").read_text())
        called.set()

    task = asyncio.create_task(watch_config(folder, names, changed))
    await asyncio.sleep(0)
    yield called
    task.cancel()


@pytest.mark.parametrize("is_new", [False, True])
async def test_what_is_written_in_steps_is_read_when_it_is_closed(is_new: bool, tmp_path: Path) -> None:
    if not is_new:
        (tmp_path / "config.yaml").write_text("before")
    calls: list[str] = []
    async with (
        asyncio.timeout(SOON_S),
        heard(tmp_path, NAMES, calls) as called,
        heard(tmp_path, {"environment"}, []) as other,
    ):
        with open(tmp_path / "config.yaml", "w") as file:
            for number in range(2):
                file.write(f"{number}\n")
                file.flush()
                # What follows the other file alone is called in its time, and this one would have been, too.
                other.clear()
                (tmp_path / "environment").write_text("X=1")
                await other.wait()
        await called.wait()
    assert calls == ["0\n1\n"]


@pytest.mark.parametrize("make", [os.symlink, os.link])
async def test_a_link_is_whole_when_it_is_made(make: Callable[[Path, Path], None], tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("whole")
    calls: list[str] = []
    async with asyncio.timeout(SOON_S), heard(tmp_path, NAMES, calls) as called:
        make(tmp_path / "elsewhere", tmp_path / "config.yaml")
        await called.wait()
    assert calls == ["whole"]


@pytest.mark.parametrize(
    ("changes", "is_other", "are_done"),
    [
        ([], False, True),
        ([("x", Change.CLOSED), ("x", Change.WRITTEN)], False, True),
        ([("config.yaml", Change.WRITTEN)], True, False),
        ([("config.yaml", Change.WRITTEN), ("config.yaml", Change.CLOSED)], True, True),
        ([("config.yaml", Change.WRITTEN), ("environment", Change.CLOSED)], True, False),
        ([("config.yaml", Change.CREATED)], True, False),
        ([("config.yaml", Change.WRITTEN), ("config.yaml", Change.REPLACED)], True, True),
        ([("config.yaml", Change.WRITTEN), ("", Change.LOST)], True, True),
        ([("config.yaml", Change.CLOSED), ("config.yaml", Change.WRITTEN)], True, False),
    ],
)
def test_who_writes_and_who_is_done(changes: list[tuple[str, Change]], is_other: bool, are_done: bool) -> None:
    writers = Writers(NAMES)
    assert writers.hear([Event(*change) for change in changes], lambda name: False) is is_other
    assert writers.are_done is are_done
