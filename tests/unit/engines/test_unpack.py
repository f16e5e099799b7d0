"""Which archives are unpacked. Every hostile row is an archive that `zipfile` itself opens without a word."""

import stat
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from engines.unpack import Member, Stopped, UnsafeArchive, open_archive, plan_members, unpack


def _info(name: str, *, size: int = 1, mode: int = stat.S_IFREG | 0o644) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.file_size = size
    info.external_attr = mode << 16
    return info


def _with(change: Callable[[zipfile.ZipInfo], None]) -> zipfile.ZipInfo:
    info = _info("a")
    change(info)
    return info


HOSTILE = {
    "parent": [_info("../x")],
    "deep parent": [_info("a/../../x")],
    "absolute": [_info("/etc/x")],
    "dot": [_info("a/./b")],
    "double slash": [_info("a//b")],
    "only dots": [_info("..")],
    "backslash": [_info("a\\..\\b")],
    "newline": [_info("a\nb")],
    "delete": [_info("a\x7f")],
    "nul": [_info("good\x00../evil")],
    "empty": [_info("")],
    "long": [_info("n" * 300)],
    "symlink": [_info("a", mode=stat.S_IFLNK | 0o777)],
    "device": [_info("a", mode=stat.S_IFCHR | 0o666)],
    "block device": [_info("a", mode=stat.S_IFBLK | 0o666)],
    "fifo": [_info("a", mode=stat.S_IFIFO | 0o666)],
    "socket": [_info("a", mode=stat.S_IFSOCK | 0o666)],
    "folder that is a file": [_info("a", mode=stat.S_IFDIR | 0o755)],
    "twice": [_info("a"), _info("a")],
    "file and folder": [_info("a"), _info("a/b")],
    "encrypted": [_with(lambda info: setattr(info, "flag_bits", 1))],
    "unknown packing": [_with(lambda info: setattr(info, "compress_type", 99))],
    "too large": [_info("a", size=60), _info("b", size=60)],
    "too many": [_info(f"f{n}") for n in range(20_001)],
}


@pytest.mark.parametrize("infos", HOSTILE.values(), ids=HOSTILE.keys())
def test_an_archive_with_anything_strange_in_it_is_refused_whole(infos: list[zipfile.ZipInfo]) -> None:
    with pytest.raises(UnsafeArchive):
        plan_members([_info("fine"), *infos], max_bytes=100)


def test_one_hostile_name_spoils_an_archive_even_outside_the_wanted_folder() -> None:
    with pytest.raises(UnsafeArchive):
        plan_members([_info("pkg/bin/x"), _info("other/../../x")], prefix="pkg/", max_bytes=100)


def test_only_the_wanted_part_is_taken_and_set_id_bits_are_dropped() -> None:
    infos = [
        _info("pkg/bin/server", mode=stat.S_IFREG | 0o6755),
        _info("pkg/bin/lib.so"),
        _info("pkg/data/x"),
        _info("pkgx/bin/y"),
        _info("dist-info/RECORD"),
        _info("pkg/bin/"),
    ]

    members = plan_members(infos, prefix="pkg/", keep=["bin/"], max_bytes=100)

    assert [(m.path, m.mode) for m in members] == [("bin/server", 0o755), ("bin/lib.so", 0o644)]


def test_identical_files_share_their_blocks_and_modes_ignore_the_umask(tmp_path: Path) -> None:
    archive = tmp_path / "x.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
        for name in ("bin/lib.so", "bin/lib.so.1", "other.so"):
            out.writestr(name, b"same" * 1000 if name.startswith("bin") else b"different")
    into = tmp_path / "tree"
    into.mkdir()

    with open_archive(archive) as opened:
        unpack(opened, plan_members(opened.infolist(), max_bytes=1 << 20), into, threading.Event())

    assert (into / "bin/lib.so").samefile(into / "bin/lib.so.1")
    assert (into / "bin/lib.so").read_bytes() == b"same" * 1000
    assert stat.S_IMODE((into / "bin").stat().st_mode) == 0o755
    assert stat.S_IMODE((into / "other.so").stat().st_mode) == 0o644


def test_a_flipped_byte_is_found(tmp_path: Path) -> None:
    archive = tmp_path / "x.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as out:
        out.writestr("a", b"0" * 1000)
    data = bytearray(archive.read_bytes())
    data[200] ^= 1
    archive.write_bytes(data)

    with open_archive(archive) as opened, pytest.raises(UnsafeArchive, match="broken"):
        unpack(opened, plan_members(opened.infolist(), max_bytes=1 << 20), tmp_path, threading.Event())


@pytest.mark.parametrize("data", [b"", b"PK", b"not a zip" * 100, b"PK\x05\x06" + b"\xff" * 18])
def test_what_is_no_archive_is_said_to_be_none(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.whl").write_bytes(data)

    with pytest.raises(UnsafeArchive), open_archive(tmp_path / "x.whl") as opened:
        plan_members(opened.infolist(), max_bytes=1)


def test_a_stop_is_heeded_between_two_chunks(tmp_path: Path) -> None:
    archive = tmp_path / "x.zip"
    with zipfile.ZipFile(archive, "w") as out:
        out.writestr("a", b"0" * 10)
    stop = threading.Event()
    stop.set()

    with open_archive(archive) as opened, pytest.raises(Stopped):
        unpack(opened, [Member("a", opened.infolist()[0], 0o644)], tmp_path, stop)
