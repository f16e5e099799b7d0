"""How much callers may keep, and which files go: tables."""

import os
from pathlib import Path

import pytest

from core.errors import LlmgwError
from engines.gates.comfyui.allowance import Allowance, Busy, find_overrunning, judge_room, plan_removals, used_by
from engines.gates.comfyui.stock import BLOCK_BYTES, Kept, Stock, read_stock, remove_empty_folders, remove_file

NOBODY = Busy({}, {})
ALLOWED = Allowance(caller_bytes=100, total_bytes=150, free_bytes=50, keep_s=1000.0)
NOW_S = 10_000.0


def kept(path: str, size: int = 10, age_s: float = 1.0, folder: str = "output") -> Kept:
    return Kept(folder, path, size, NOW_S - age_s)


def stock(*files: Kept, free: int = 1000) -> Stock:
    return Stock(files, free)


ROOM: list[tuple[Stock, int, int, str]] = [
    (stock(), 0, 100, ""), (stock(), 0, 101, "files_over_limit"), (stock(kept("a/x", 90)), 0, 10, ""),
    (stock(kept("a/x", 90)), 0, 11, "files_over_limit"), (stock(kept("a/x", 90)), 1, 10, "files_over_limit"),
    (stock(kept("a/x", 99)), 0, 0, ""), (stock(kept("a/x", 100)), 0, 0, "files_over_limit"),
    (stock(kept("b/x", 100)), 0, 50, ""), (stock(kept("b/x", 100)), 0, 51, "files_full"),
    (stock(kept("a/x", 60, folder="input"), kept("a/x", 60)), 0, 0, "files_over_limit"),
    (stock(free=50), 0, 0, ""), (stock(free=49), 0, 0, "files_full"), (stock(free=60), 0, 11, "files_full"),
    (stock(kept("t.png", 100, folder="temp")), 0, 0, "files_over_limit"),
    (stock(kept("u.png", 100, folder="temp")), 0, 0, ""),
]  # fmt: skip


@pytest.mark.parametrize(("found", "coming", "more", "code"), ROOM, ids=range(len(ROOM)))
def test_who_may_bring_more(found: Stock, coming: int, more: int, code: str) -> None:
    try:
        judge_room(found, "a", Busy({}, {"t.png": "a"}), ALLOWED, coming=coming, more=more)
    except LlmgwError as error:
        assert error.code == code
        assert error.http_status == (413 if code == "files_over_limit" else 507)
    else:
        assert code == ""


GOING: list[tuple[str, Busy, int, list[Kept], list[str]]] = [
    ("old ones go", NOBODY, 0, [kept("a/old", age_s=1001), kept("a/new")], ["a/old"]),
    ("the oldest go when there are too many", NOBODY, 0,
     [kept("a/1", 60, 30), kept("b/2", 60, 20), kept("a/3", 60, 10)], ["a/1"]),
    ("results go before uploads", NOBODY, 0, [kept("a/1", 80, 30, "input"), kept("b/2", 80, 20)], ["b/2"]),
    ("uploads go when nothing else is left", NOBODY, 0, [kept("a/1", 200, 30, "input")], ["a/1"]),
    ("room for more", NOBODY, 100, [kept("a/1", 60, 30), kept("b/2", 40, 20)], ["a/1"]),
    ("none go for room that cannot be had", Busy({"a": NOW_S - 50}, {}), 100,
     [kept("a/1", 60, 30, "input"), kept("b/2", 40, 20)], []),
    ("what a running prompt wrote stays", Busy({"a": NOW_S - 50}, {}), 0,
     [kept("a/before", 80, 60), kept("a/since", 80, 40), kept("b/old", 80, 30)], ["a/before", "b/old"]),
    ("what it may read stays", Busy({"a": NOW_S - 50}, {}), 0,
     [kept("a/up", 200, 2000, "input"), kept("b/up", 10, 2000, "input")], ["b/up"]),
    ("temporary files without an owner stay while anybody works", Busy({"a": NOW_S - 50}, {}), 0,
     [kept("t.png", 200, 40, "temp"), kept("u.png", 200, 60, "temp")], ["u.png"]),
    ("temporary files of others go", Busy({"a": NOW_S - 50}, {"t.png": "b"}), 0,
     [kept("t.png", 200, 40, "temp")], ["t.png"]),
    ("nothing", NOBODY, 0, [kept("a/1", 150)], []),
]  # fmt: skip


@pytest.mark.parametrize(("busy", "room", "files", "going"), [row[1:] for row in GOING], ids=[row[0] for row in GOING])
def test_which_files_go(busy: Busy, room: int, files: list[Kept], going: list[str]) -> None:
    assert [file.path for file in plan_removals(stock(*files), busy, ALLOWED, NOW_S, room)] == going


def test_without_a_time_files_stay_until_the_room_is_needed() -> None:
    forever = Allowance(total_bytes=100, keep_s=0.0)
    assert plan_removals(stock(kept("a/1", 90, 10**9)), NOBODY, forever, NOW_S) == []


def test_who_writes_far_too_much_is_found() -> None:
    found = stock(kept("a/1", 126), kept("b/1", 125), kept("c/1", 900))
    assert find_overrunning(found, ["a", "b"], NOBODY, ALLOWED) == {"a": 126}
    assert used_by(found, "c", NOBODY) == 900


def test_the_disk_is_read_as_it_is(tmp_path: Path) -> None:
    for path in ("output/c-1/sub/a.png", "output/c-1/b.png", "output/loose.png", "output/NOT A MARK/c.png",
                 "input/c-1/d.png", "input/direct/e.png", "temp/f.png", "temp/deep/g.png"):  # fmt: skip
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(b"x" * (10_000 if path.endswith("a.png") else 1))
    (tmp_path / "output/c-1/link").symlink_to("/etc")
    found = read_stock(tmp_path)
    sizes = {(file.folder, file.path): file.size_bytes for file in found.files}
    assert set(sizes) == {
        ("output", "c-1/sub/a.png"), ("output", "c-1/b.png"), ("output", "c-1/link"), ("input", "c-1/d.png"),
        ("input", "direct/e.png"), ("temp", "f.png"), ("temp", "deep/g.png"),
    }  # fmt: skip
    assert sizes["output", "c-1/sub/a.png"] >= 10_000 and sizes["temp", "f.png"] >= BLOCK_BYTES
    assert {file.owner for file in found.files} == {"c-1", "direct", ""}
    assert found.free_bytes > 0
    assert [remove_file(tmp_path, file) for file in found.files] == [True] * 7
    assert [remove_file(tmp_path, file) for file in found.files] == [False] * 7
    assert Path("/etc").is_dir() and (tmp_path / "output/loose.png").exists()
    os.utime(tmp_path / "output/c-1/sub", (1, 1))
    remove_empty_folders(tmp_path, (tmp_path / "output/c-1").stat().st_mtime + 10)
    assert not (tmp_path / "output/c-1/sub").exists() and (tmp_path / "output/c-1").exists()


def test_a_disk_that_cannot_be_asked_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LlmgwError):
        read_stock(tmp_path / "nowhere")
