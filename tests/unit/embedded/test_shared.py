"""Folders of supervisors that were killed are taken away once their state is gone, and never one that is in use."""

import fcntl
import os
from pathlib import Path

from units.embedded.shared import remove_abandoned


def make(parent: Path, name: str, state: Path) -> Path:
    folder = parent / f"llmgw-{name}"
    (folder / "unit.credentials").mkdir(parents=True)
    (folder / "state").symlink_to(state)
    return folder


def test_only_what_is_abandoned_goes(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    kept = make(tmp_path, "kept", state)
    abandoned = make(tmp_path, "abandoned", tmp_path / "gone")
    running = make(tmp_path, "running", tmp_path / "gone")
    foreign = tmp_path / "llmgw-foreign"
    foreign.mkdir()
    (tmp_path / "llmgw-file").write_text("")
    (tmp_path / "llmgw-link").symlink_to(kept)
    lock = os.open(running, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_SH)
    remove_abandoned(tmp_path)
    os.close(lock)
    assert not abandoned.exists()
    assert kept.exists() and running.exists() and foreign.exists()


def test_a_link_to_a_folder_is_not_followed(tmp_path: Path) -> None:
    elsewhere = make(tmp_path / "elsewhere", "x", tmp_path / "gone")
    (tmp_path / "llmgw-link").symlink_to(elsewhere)
    remove_abandoned(tmp_path)
    assert elsewhere.exists()
