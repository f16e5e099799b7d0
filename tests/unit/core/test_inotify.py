"""Changes in a folder, from the real kernel."""

import asyncio
import os
from pathlib import Path

import pytest

from core.files import StorageError, write_atomic
from core.inotify import parse_events, watch_directory
from daemon.config_watch import watch_config


async def test_a_rename_over_a_file_is_heard(tmp_path: Path) -> None:
    watch = watch_directory(tmp_path)
    first = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0)
    write_atomic(tmp_path / "config.yaml", "a: 1")
    seen = await first
    while "config.yaml" not in seen:
        seen |= await anext(watch)
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
    assert parse_events(event * 2) == {"config.yaml"}
    assert parse_events(b"") == set()
    assert parse_events(os.urandom(7)) == set()
