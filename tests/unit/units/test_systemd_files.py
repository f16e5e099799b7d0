"""Unit files on disk: ours alone, whole or not at all."""

import os
from pathlib import Path

import pytest

from core.errors import BugError
from core.files import StorageError
from units.backend import UnitFileChange
from units.systemd.files import read_unit_files, write_unit_files

NAME = "llmgw-engine-a.service"


def test_only_plain_files_of_our_names_are_read(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("ours")
    (tmp_path / "ssh.service").write_text("foreign")
    (tmp_path / "llmgw-engine-b.service").symlink_to("/dev/null")
    (tmp_path / "llmgw-engine-c.service").mkdir()
    (tmp_path / "llmgw-engine-a.service.d").mkdir()
    (tmp_path / ".llmgw-engine-d.service.12.new").write_text("half")
    os.mkfifo(tmp_path / "llmgw-engine-e.service")
    assert read_unit_files(tmp_path) == {NAME: "ours"}


def test_no_directory_holds_no_files(tmp_path: Path) -> None:
    assert read_unit_files(tmp_path / "none") == {}


def test_bytes_that_are_no_text_are_still_read(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"\xff\x00garbage")
    assert read_unit_files(tmp_path) == {NAME: "\ufffd\x00garbage"}


def test_files_are_written_replaced_and_removed_again_and_again(tmp_path: Path) -> None:
    for _ in range(2):
        write_unit_files(tmp_path / "units", [UnitFileChange(NAME, "one"), UnitFileChange(NAME, "two")])
        assert read_unit_files(tmp_path / "units") == {NAME: "two"}
    for _ in range(2):
        write_unit_files(tmp_path / "units", [UnitFileChange(NAME, None)])
        assert os.listdir(tmp_path / "units") == []


def test_a_mask_is_replaced_and_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("precious")
    (tmp_path / NAME).symlink_to(target)
    write_unit_files(tmp_path, [UnitFileChange(NAME, "ours")])
    assert (target.read_text(), (tmp_path / NAME).read_text()) == ("precious", "ours")


@pytest.mark.parametrize("name", ["ssh.service", "../llmgw-engine-a.service", "", "llmgw-engine-a.socket"])
def test_a_foreign_name_is_refused_before_anything_is_written(name: str, tmp_path: Path) -> None:
    with pytest.raises(BugError):
        write_unit_files(tmp_path, [UnitFileChange(NAME, "x"), UnitFileChange(name, "x")])
    assert os.listdir(tmp_path) == []


def test_what_a_killed_writer_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / f".{NAME}.4711.new").write_text("half")
    (tmp_path / ".ssh.service.4711.new").write_text("foreign")
    write_unit_files(tmp_path, [UnitFileChange(NAME, "ours")])
    assert sorted(os.listdir(tmp_path)) == [".ssh.service.4711.new", NAME]


def test_what_cannot_be_written_is_one_error_that_names_the_file(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    for change in (UnitFileChange(NAME, "x"), UnitFileChange(NAME, None)):
        with pytest.raises(StorageError, match=NAME):
            write_unit_files(tmp_path, [change])
    assert os.listdir(tmp_path) == [NAME]
