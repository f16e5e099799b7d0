"""Which tar archives are unpacked, and what links in them become."""

import gzip
import io
import os
import stat
import tarfile
import threading
from pathlib import Path

import pytest

from core.files import StorageError
from engines.unpack import Stopped, UnsafeArchive
from engines.untar import plan_tar, unpack_tar


def _info(
    name: str, kind: bytes = tarfile.REGTYPE, *, to: str = "", size: int = 1, mode: int = 0o644
) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size, info.mode = kind, to, size, mode
    return info


def _link(name: str, to: str) -> tarfile.TarInfo:
    return _info(name, tarfile.SYMTYPE, to=to, size=0)


HOSTILE = {
    "parent": [_info("../x")],
    "deep parent": [_info("a/../../x")],
    "absolute": [_info("/etc/x")],
    "dot": [_info("a/./b")],
    "double slash": [_info("a//b")],
    "backslash": [_info("a\\..\\b")],
    "newline": [_info("a\nb")],
    "empty": [_info("")],
    "long": [_info("n" * 300)],
    "link out": [_link("a", "../../etc/passwd")],
    "absolute link": [_link("a", "/etc/passwd")],
    "link to the folder": [_link("a", ".")],
    "link to its parent": [_link("x/a", "..")],
    "link to nothing": [_link("a", "b")],
    "link to a folder": [_info("d/x"), _info("d", tarfile.DIRTYPE, size=0), _link("a", "d")],
    "link in a circle": [_link("a", "b"), _link("b", "a")],
    "link to itself": [_link("a", "a")],
    "hard link out": [_info("a", tarfile.LNKTYPE, to="../x")],
    "hard link to nothing": [_info("a", tarfile.LNKTYPE, to="nothing")],
    "through a link": [_info("d/x"), _link("l", "d"), _info("l/y")],
    "device": [_info("a", tarfile.CHRTYPE)],
    "block device": [_info("a", tarfile.BLKTYPE)],
    "fifo": [_info("a", tarfile.FIFOTYPE)],
    "sparse": [_info("a", tarfile.GNUTYPE_SPARSE)],
    "unknown": [_info("a", b"?")],
    "twice": [_info("a"), _info("a")],
    "twice with a dot": [_info("a"), _info("./a")],
    "file and folder": [_info("a"), _info("a/b")],
    "too large": [_info("a", size=60), _info("b", size=60)],
    "too many": [_info(f"f{n}") for n in range(20_001)],
}


@pytest.mark.parametrize("infos", HOSTILE.values(), ids=HOSTILE.keys())
def test_an_archive_with_anything_strange_in_it_is_refused_whole(infos: list[tarfile.TarInfo]) -> None:
    with pytest.raises(UnsafeArchive):
        plan_tar([_info("fine"), *infos], max_bytes=100)


def test_the_folder_around_everything_is_left_out_and_set_id_bits_are_dropped() -> None:
    infos = [
        _info("llama-b1", tarfile.DIRTYPE, size=0),
        _info("llama-b1/llama-server", mode=0o6755),
        _info("llama-b1/lib.so.1"),
        _link("llama-b1/lib.so", "lib.so.1"),
        _link("llama-b1/sub/lib.so", "../lib.so"),
        _info("llama-b1/hard", tarfile.LNKTYPE, to="llama-b1/lib.so.1"),
    ]

    planned = [(member.path, member.mode, member.same_as) for member in plan_tar(infos, max_bytes=100)]

    assert planned == [
        ("llama-server", 0o755, ""),
        ("lib.so.1", 0o644, ""),
        ("lib.so", 0o644, "lib.so.1"),
        ("sub/lib.so", 0o644, "lib.so.1"),
        ("hard", 0o644, "lib.so.1"),
    ]


@pytest.mark.parametrize("names", [["a/x", "b/y"], ["a/x", "y"], ["x", "y"], ["./x", "./y"]])
def test_without_one_folder_around_everything_names_stay(names: list[str]) -> None:
    planned = plan_tar([_info(".", tarfile.DIRTYPE, size=0), *map(_info, names)], max_bytes=100)

    assert [member.path for member in planned] == [name.removeprefix("./") for name in names]


def _archive(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for info, data in members:
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def test_files_are_written_and_links_become_names_of_the_same_file(tmp_path: Path) -> None:
    archive = _archive(
        tmp_path / "a.tar.gz",
        (_link("r/lib.so", "lib.so.1"), b""),
        (_info("r/bin/server", mode=0o755), b"#!/bin/sh\n"),
        (_info("r/lib.so.1"), b"library"),
    )
    into = tmp_path / "into"
    into.mkdir()

    unpack_tar(archive, into, threading.Event(), max_bytes=1000)

    assert (into / "bin/server").read_bytes() == b"#!/bin/sh\n" and os.access(into / "bin/server", os.X_OK)
    assert (into / "lib.so").samefile(into / "lib.so.1") and (into / "lib.so").read_bytes() == b"library"
    assert not any(stat.S_ISLNK(path.lstat().st_mode) for path in into.rglob("*"))


def test_two_archives_that_hold_the_same_file_are_no_build(tmp_path: Path) -> None:
    archive = _archive(tmp_path / "a.tar.gz", (_info("x"), b"1"))
    into = tmp_path / "into"
    into.mkdir()
    unpack_tar(archive, into, threading.Event(), max_bytes=1000)

    with pytest.raises(UnsafeArchive, match="two archives"):
        unpack_tar(archive, into, threading.Event(), max_bytes=1000)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PK\x03\x04",
        b"\x1f\x8b",
        gzip.compress(b"no tar, and long enough to be a head" * 40),
        b"\x1f\x8b" + b"\0" * 600,
    ],
)
def test_what_is_no_archive_is_told(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz").write_bytes(data)

    with pytest.raises(UnsafeArchive, match="a.tar.gz"):
        unpack_tar(tmp_path / "a.tar.gz", tmp_path, threading.Event(), max_bytes=1000)


def test_an_archive_that_was_cut_short_or_damaged_is_told(tmp_path: Path) -> None:
    whole = _archive(tmp_path / "a.tar.gz", (_info("x"), os.urandom(100_000))).read_bytes()
    for name, data in {"cut": whole[: len(whole) // 2], "damaged": whole[:5000] + b"\xff" * 100 + whole[5100:]}.items():
        (tmp_path / name).mkdir()
        (tmp_path / "b.tar.gz").write_bytes(data)
        with pytest.raises(UnsafeArchive, match="b.tar.gz"):
            unpack_tar(tmp_path / "b.tar.gz", tmp_path / name, threading.Event(), max_bytes=1 << 20)


def test_a_bomb_does_not_go_off(tmp_path: Path) -> None:
    long_head = _info("x", tarfile.XHDTYPE, size=5 << 20)
    heads = {
        "file": _info("x", size=1 << 40).tobuf(),
        "head": long_head.tobuf() + bytes(5 << 20),
        "zeros": _info("x", size=200 << 20).tobuf() + bytes(200 << 20),
    }
    for name, data in heads.items():
        (tmp_path / name).write_bytes(gzip.compress(data, 1))
        with pytest.raises(UnsafeArchive):
            unpack_tar(tmp_path / name, tmp_path, threading.Event(), max_bytes=1 << 20)


def test_a_stop_is_heard_and_a_missing_archive_is_told(tmp_path: Path) -> None:
    archive = _archive(tmp_path / "a.tar.gz", (_info("x"), b"1"))
    stop = threading.Event()
    stop.set()

    with pytest.raises(Stopped):
        unpack_tar(archive, tmp_path, stop, max_bytes=1000)
    with pytest.raises(StorageError):
        unpack_tar(tmp_path / "none", tmp_path, threading.Event(), max_bytes=1000)
