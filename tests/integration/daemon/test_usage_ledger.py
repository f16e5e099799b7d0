"""The ledger on a real disk: kept, set aside, bounded in time, and going on where nothing can be written."""

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import date, timedelta
from pathlib import Path

import pytest

from core.errors import UsageError
from core.files import StorageError
from core.log import configure, get_logger
from core.usage import DIMENSIONS, UsageReport, UsageRow
from daemon.usage.ledger import Ledger
from daemon.usage.store import DayStore

NOW_S = 1_800_000_000.0
TODAY = "2027-01-15"


class Clock:
    """A clock that a test turns by hand."""

    def __init__(self) -> None:
        self.now_s = NOW_S

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_s(self) -> float:
        return self.now_s


def day(back: int) -> str:
    return (date.fromisoformat(TODAY) - timedelta(days=back)).isoformat()


def report(sequence: int, *days: str, source: str = "w", key: str = "k", model: str = "m") -> UsageReport:
    rows = [UsageRow(day=name, key=key, model=model, requests=1, prompt_tokens=10) for name in days]
    return UsageReport(source=source, sequence=sequence, rows=rows)


@asynccontextmanager
async def ledger(directory: Path, clock: Clock | None = None, *, days: int = 400) -> AsyncIterator[Ledger]:
    log = get_logger("test")
    made = Ledger(DayStore(directory, log), clock or Clock(), lambda: days, log)
    running = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        running.cancel()


async def requests(book: Ledger, **asked: str) -> int:
    found = await book.list(
        first=asked.get("first", ""), last=asked.get("last", ""), key=asked.get("key"),
        model=asked.get("model", ""), by=DIMENSIONS,
    )  # fmt: skip
    return found.total.requests


async def test_a_report_is_on_disk_when_it_is_answered_and_counted_once_over_a_restart(tmp_path: Path) -> None:
    async with ledger(tmp_path / "u") as book:
        await book.take(report(1, TODAY))
        assert json.loads((tmp_path / "u" / f"{TODAY}.json").read_text())["rows"][0]["promptTokens"] == 10
    async with ledger(tmp_path / "u") as book:
        await book.take(report(1, TODAY))
        assert await requests(book) == 1
        await book.take(report(2, TODAY))
    async with ledger(tmp_path / "u") as book:
        assert await requests(book) == 2
    assert (tmp_path / "u").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "u" / f"{TODAY}.json").stat().st_mode & 0o777 == 0o600


async def test_a_report_over_midnight_is_in_both_days_even_when_only_one_was_written(tmp_path: Path) -> None:
    both = report(1, day(1), TODAY)
    async with ledger(tmp_path) as book:
        await book.take(both)
    (tmp_path / f"{TODAY}.json").unlink()  # as if the power had gone between the two
    async with ledger(tmp_path) as book:
        await book.take(both)
        assert await requests(book, first=day(1), last=day(1)) == 1
        assert await requests(book, first=TODAY) == 1


async def test_many_reports_at_once_are_all_kept(tmp_path: Path) -> None:
    async with ledger(tmp_path) as book, asyncio.TaskGroup() as group:
        for number in range(200):
            group.create_task(book.take(report(1, day(number % 40), source=f"w{number}")))
            if number % 20 == 0:
                group.create_task(requests(book, first=day(60)))
    async with ledger(tmp_path) as book:
        assert await requests(book, first=day(60)) == 200


async def test_it_is_listed_by_what_is_asked(tmp_path: Path) -> None:
    async with ledger(tmp_path) as book:
        await book.take(report(1, TODAY, day(1), key="a", model="m"))
        await book.take(report(2, TODAY, key="b", model="n"))
        await book.take(report(3, TODAY, key="", model="n"))
        await book.take(report(4, day(100), key="a", model="m"))
        assert await requests(book) == 4
        assert await requests(book, first=day(100)) == 5
        assert await requests(book, first=day(100), last=day(2)) == 1
        assert await requests(book, key="a") == 2
        assert await requests(book, key="") == 1
        assert await requests(book, model="n") == 2
        assert await requests(book, key="a", model="n") == 0
        by_model = await book.list(first="", last="", key=None, model="", by=["model"])
        assert [(row.day, row.key, row.model, row.requests) for row in by_model.rows] == [
            ("", "", "m", 2),
            ("", "", "n", 2),
        ]
        for wrong in ({"first": "yesterday"}, {"last": "2027-13-01"}, {"first": TODAY, "last": day(1)}):
            with pytest.raises(UsageError):
                await requests(book, **wrong)


@pytest.mark.parametrize("content", [b"", b"{", b'{"rows": "none"}', b"\x00" * 100, None])
async def test_a_day_that_cannot_be_read_is_set_aside_and_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None
) -> None:
    configure("test")
    path = tmp_path / f"{TODAY}.json"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    async with ledger(tmp_path) as book:
        await book.take(report(1, TODAY))
        await book.take(report(2, TODAY))
        assert await requests(book) == 2
    assert capsys.readouterr().err.count("usage_day_set_aside") == 1
    aside = tmp_path / f"{TODAY}.json.broken-1"
    assert aside.is_dir() if content is None else aside.read_bytes() == content


async def test_a_disk_that_cannot_be_written_stops_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    configure("test")
    directory = tmp_path / "u"
    directory.write_text("not a directory")
    async with ledger(directory) as book:
        await book.take(report(1, TODAY))
        await book.take(report(2, TODAY))
        with pytest.raises(StorageError):
            await requests(book)
        assert capsys.readouterr().err.count("usage_not_saved") == 1
        directory.unlink()
        await book.take(report(3, TODAY))
    async with ledger(directory) as book:
        assert await requests(book) == 3


async def test_a_full_disk_stops_nobody(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small file system; sudo make test")
    mount = await asyncio.create_subprocess_exec("mount", "-t", "tmpfs", "-o", "size=64k", "none", str(tmp_path))
    if await mount.wait():
        pytest.skip("cannot mount a tmpfs here")
    try:
        async with ledger(tmp_path / "u") as book:
            await book.take(report(1, TODAY))
            filler = tmp_path / "filler"
            with filler.open("wb", buffering=0) as file, pytest.raises(OSError):
                while True:
                    file.write(b"x" * 4096)
            await book.take(report(2, TODAY))
            assert await requests(book) == 2
            filler.unlink()
            await book.write()
        async with ledger(tmp_path / "u") as book:
            assert await requests(book) == 2
    finally:
        await (await asyncio.create_subprocess_exec("umount", "-l", str(tmp_path))).wait()


async def test_days_go_when_they_are_old_and_nothing_else_does(tmp_path: Path) -> None:
    for name in (f"{day(400)}.json", f"{day(10)}.json", f"{day(9)}.json", "notes.json", f"{day(400)}.txt"):
        (tmp_path / name).write_text('{"rows":[],"sources":{}}')
    async with ledger(tmp_path, days=10) as book:
        await book.take(report(1, TODAY))
        await book.write()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [f"{day(400)}.txt", f"{day(9)}.json", f"{TODAY}.json", "notes.json"]
    )


async def test_a_day_that_was_taken_away_does_not_come_back(tmp_path: Path) -> None:
    async with ledger(tmp_path / "u") as book:
        await book.take(report(1, TODAY, TODAY))
        shutil.rmtree(tmp_path / "u")
        assert await requests(book) == 0
        await book.take(report(2, TODAY))
        assert await requests(book) == 1


async def test_a_day_that_cannot_be_is_today(tmp_path: Path) -> None:
    async with ledger(tmp_path, days=10) as book:
        await book.take(report(1, "1970-01-01", "9999-12-31", day(10), day(-2)))
        assert await requests(book, first=TODAY, last=TODAY) == 4
        await book.take(report(2, day(9), day(-1)))
        assert await requests(book, first=day(9), last=day(9)) == 1
