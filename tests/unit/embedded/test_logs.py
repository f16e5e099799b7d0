"""Log files: read from the end, followed, trimmed under a writer. Real files, on the disk and in memory."""

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from units.embedded.logs import LogTrimmer, follow_lines, read_last_lines, trim_log

LINE = b"%09d " + b"x" * 89 + b"\n"


@pytest.fixture(params=["disk", "memory"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """On most disks the head can be collapsed, in memory only be punched out."""
    if request.param == "disk":
        yield tmp_path / "a.log"
        return
    with TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder) / "a.log"


@pytest.mark.parametrize(
    ("data", "lines", "found"),
    [
        (b"", 5, []),
        (b"a\nb\nc\n", 2, ["b", "c"]),
        (b"a\nb\nc\n", 9, ["a", "b", "c"]),
        (b"a\nb", 5, ["a", "b"]),
        (b"a\nb", 1, ["b"]),
        (b"a\n\n\n", 2, ["", ""]),
        (b"a\n", 0, []),
        (b"\xff\n", 1, ["\ufffd"]),
        (b"\0\0\0a\nb\n", 5, ["a", "b"]),
        (b"a\xe2\x80\xa8b\n", 5, ["a\u2028b"]),
        (b"\n".join(b"%d" % number for number in range(50_000)), 2, ["49998", "49999"]),
        (b"x" * 200_000 + b"\ny\n", 2, ["x" * 200_000, "y"]),
    ],
)
def test_the_last_lines_are_read(data: bytes, lines: int, found: list[str], tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(data)
    assert read_last_lines(path, lines) == found


def test_a_log_that_is_not_there_has_no_lines(tmp_path: Path) -> None:
    assert read_last_lines(tmp_path / "none.log", 5) == []


def test_the_head_goes_and_the_writer_goes_on(log: Path) -> None:
    writer = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for number in range(30_000):
        os.write(writer, LINE % number)
    assert trim_log(log, cap_bytes=1 << 20, keep_bytes=1 << 19)
    for number in range(30_000, 30_100):
        os.write(writer, LINE % number)
    os.close(writer)
    assert log.stat().st_blocks * 512 < 1 << 20
    numbers = [int(line.split()[0]) for line in read_last_lines(log, 5000)]
    assert numbers == list(range(25_100, 30_100))
    assert not trim_log(log, cap_bytes=1 << 20, keep_bytes=1 << 19)


def test_only_logs_that_are_too_large_are_trimmed(tmp_path: Path) -> None:
    small, large = tmp_path / "small.log", tmp_path / "large.log"
    small.write_bytes(b"x\n" * 1000)
    large.write_bytes(b"x\n" * 500_000)
    LogTrimmer(tmp_path, cap_bytes=1 << 19, keep_bytes=1 << 18).trim_all()
    assert small.stat().st_size == 2000
    assert large.stat().st_blocks * 512 <= 1 << 19


async def test_a_follower_sees_the_last_lines_and_each_new_one_once(log: Path) -> None:
    log.write_bytes(b"a\nb\nc\npart")
    lines = follow_lines(log, 2)
    assert [await anext(lines), await anext(lines)] == ["b", "c"]
    with log.open("ab") as file:
        file.write(b"ial\nd\n")
    assert [await anext(lines), await anext(lines)] == ["partial", "d"]


async def test_a_follower_waits_for_a_log_that_does_not_exist_yet(log: Path) -> None:
    lines = follow_lines(log, 5)
    log.write_bytes(b"")
    with log.open("ab") as file:
        file.write(b"first\n")
    assert await anext(lines) == "first"


async def test_a_follower_keeps_its_place_when_the_head_is_cut_off(log: Path) -> None:
    with log.open("wb", buffering=0) as file:
        file.write(b"".join(LINE % number for number in range(30_000)))
        lines = follow_lines(log, 1)
        assert (await anext(lines)).startswith("000029999")
        trim_log(log, cap_bytes=1 << 20, keep_bytes=1 << 19)
        with log.open("ab") as more:
            more.write(LINE % 30_000)
    assert (await anext(lines)).startswith("000030000")


async def test_a_follower_goes_on_after_the_file_was_emptied(log: Path) -> None:
    log.write_bytes(b"a\nb\n")
    lines = follow_lines(log, 5)
    assert [await anext(lines), await anext(lines)] == ["a", "b"]
    os.truncate(log, 0)
    with log.open("ab") as file:
        file.write(b"new\n")
    assert await anext(lines) == "new"


async def test_a_last_line_that_nobody_ends_is_shown_after_a_while(log: Path) -> None:
    log.write_bytes(b"a\nout of mem")
    lines = follow_lines(log, 5)
    assert [await anext(lines), await anext(lines)] == ["a", "out of mem"]
