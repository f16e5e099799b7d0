"""Atomic writes and locks, on a real file system."""

import os
from pathlib import Path

import pytest

from core.errors import ConflictError
from core.files import StorageError, ensure_directory, lock_file, write_atomic


def test_a_write_replaces_content_and_mode(tmp_path: Path) -> None:
    target = tmp_path / "x"
    target.write_text("old")
    write_atomic(target, "new", mode=0o640)
    assert target.read_text() == "new"
    assert target.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["x"]


def test_a_full_disk_keeps_the_old_file_and_says_what_to_free(tmp_path: Path) -> None:
    target = tmp_path / "x"
    target.write_text("old")
    with pytest.raises(StorageError) as caught:
        write_atomic(Path("/dev/full/x"), "new")
    assert caught.value.code == "storage_failed"
    assert target.read_text() == "old"


def test_a_missing_folder_is_an_error_with_the_path(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="nowhere"):
        write_atomic(tmp_path / "nowhere" / "x", "new")


def test_a_planted_symlink_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("safe")
    target = tmp_path / "x"
    target.symlink_to(victim)
    write_atomic(target, "new")
    assert victim.read_text() == "safe"
    assert not target.is_symlink()


def test_directories_get_their_mode(tmp_path: Path) -> None:
    ensure_directory(tmp_path / "a" / "b", mode=0o700)
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700


def test_a_held_lock_is_a_conflict(tmp_path: Path) -> None:
    with lock_file(tmp_path / "lock"), pytest.raises(ConflictError), lock_file(tmp_path / "lock"):
        pass
    with lock_file(tmp_path / "lock"):
        pass
