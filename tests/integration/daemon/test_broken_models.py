"""A model that llama.cpp cannot load: told by the file's name and what it is, before any engine is started."""

import os
import struct
from pathlib import Path

import pytest

from core.errors import DependencyError, LlmgwError
from engines.gguf import PART_MARK
from engines.weights import WeightsBroken, WeightsMissing, check_gguf
from tests.engines.tiny_model import write_tiny_adapter, write_tiny_model
from tests.integration.daemon.stack import running

FINE = b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + bytes(100)
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 4683\n"


def an_engine(folder: Path) -> Path:
    """A program that says that it was started, and with which model."""
    path = folder / "llama-server"
    path.write_text('#!/bin/sh\necho "was started: $*"\nexit 1\n')
    path.chmod(0o755)
    return path


async def test_a_pointer_of_git_lfs_is_told_and_a_mended_file_is_started(tmp_path: Path) -> None:
    model, state = tmp_path / "m.gguf", tmp_path / "state"
    model.write_bytes(POINTER)
    state.mkdir()
    config = f"runtimes: {{m: {{engine: llamacpp, build: {an_engine(tmp_path)}, weights: {model}, memoryGb: 0.1}}}}\n"
    async with running(state, config) as stack:
        with pytest.raises(DependencyError) as caught:
            await stack.client.start_runtime("m")
        assert caught.value.code == "weights_broken"
        assert str(model) in caught.value.message and "git-lfs" in caught.value.message
        assert "git lfs pull" in caught.value.hint
        assert (await stack.until_runtime("m", "failed")).log == [], "no engine ran"

        model.write_bytes(FINE)
        with pytest.raises(LlmgwError, match="exited with status 1"):
            await stack.client.start_runtime("m")
        assert "was started" in (await stack.until_runtime("m", "failed")).log[-1]


def test_a_model_in_parts_is_named_by_its_first_and_needs_all(tmp_path: Path) -> None:
    parts = [tmp_path / f"m-{number:05}-of-00003.gguf" for number in (1, 2, 3)]
    for part in parts:
        part.write_bytes(FINE + bytes((1 << 20) - len(FINE) - 9) + PART_MARK + b"\3\0" + bytes(9))

    check_gguf(parts[0])
    with pytest.raises(WeightsBroken, match="is part 2 of 3") as second:
        check_gguf(parts[1])
    assert str(parts[0]) in second.value.hint
    parts[2].write_bytes(FINE[:30])
    with pytest.raises(WeightsBroken, match="00003-of-00003.gguf promises"):
        check_gguf(parts[0])
    parts[2].unlink()
    with pytest.raises(WeightsMissing, match="00003-of-00003.gguf does not exist, and it is part 3 of 3"):
        check_gguf(parts[0])


def test_a_whole_model_may_be_called_like_a_part(tmp_path: Path) -> None:
    check_gguf(write_tiny_model(tmp_path / "m-00002-of-00003.gguf"))


def test_a_model_that_engines_load_is_fine(tmp_path: Path) -> None:
    check_gguf(write_tiny_model(tmp_path / "tiny.gguf"))
    check_gguf(write_tiny_adapter(tmp_path / "adapter.gguf"))


def test_a_folder_and_a_pipe_are_no_model(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(WeightsBroken, match="is a folder"):
        check_gguf(tmp_path)
    with pytest.raises(WeightsBroken, match="is empty"):
        check_gguf(tmp_path / "pipe.gguf")
    with pytest.raises(WeightsMissing, match="none.gguf do not exist"):
        check_gguf(tmp_path / "none.gguf")
