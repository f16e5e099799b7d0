"""`llmgw up` without a network, on a full disk, and as a user who is nobody: one clear message, or it just works."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cli.test_up import SIM, ask, write_config
from tests.integration.cli.upped import Up, engine_pids, free_port, processes_of, run_cli

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="makes namespaces and mounts: run as root (sudo make test)"),
]

NO_NETWORK = ("unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


def test_without_a_network_the_first_start_says_so(tmp_path: Path) -> None:
    refused = run_cli("up", "--port", str(free_port()), state=tmp_path, prefix=NO_NETWORK)

    assert refused.code == 10, refused.err
    assert "package index cannot be reached" in refused.err
    assert refused.err.count("error:") == 1 and "Traceback" not in refused.err
    assert processes_of(tmp_path) == {}


def test_without_a_network_a_later_start_serves(tmp_path: Path) -> None:
    write_config(tmp_path, SIM)
    with Up(tmp_path, prefix=NO_NETWORK) as up:
        assert up.serving["answer"]
        assert up.stop() == 0
        assert processes_of(tmp_path) == {}


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "llmgw-cli-test", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.mark.parametrize("size", ["40m", "96k"])
def test_a_disk_that_is_too_small_is_one_clear_message(tmp_path: Path, size: str) -> None:
    with small_disk(tmp_path, size):
        refused = run_cli("up", "--port", str(free_port()), state=tmp_path / "s")

        assert refused.code == 10, refused.err
        assert "[disk_full]" in refused.err
        assert refused.err.count("error:") == 1 and "Traceback" not in refused.err
        assert processes_of(tmp_path) == {}


def test_a_disk_that_is_full_already_is_one_clear_message(tmp_path: Path) -> None:
    with small_disk(tmp_path, "64k"):
        with contextlib.suppress(OSError):
            (tmp_path / "filler").write_bytes(b"x" * (1 << 20))

        refused = run_cli("up", "--json", state=tmp_path / "s")

        assert (refused.code, refused.error["code"]) == (10, "disk_full"), refused.out + refused.err
        assert processes_of(tmp_path) == {}


def test_any_user_may_and_leaves_nothing(tmp_path: Path) -> None:
    # pytest's own folder is closed to others.
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="llmgw-cli-") as name:
        state = Path(name)
        write_config(state, SIM)
        for path in (state, state / "config.yaml"):
            shutil.chown(path, 65534, 65534)

        with Up(state, prefix=NOBODY) as up:
            assert ask(up.serving["url"])
            assert all(Path(f"/proc/{pid}").stat().st_uid == 65534 for pid in engine_pids(state))
            assert run_cli("runtime-restart", "demo", state=state, prefix=NOBODY).code == 0
            assert up.stop() == 0
            assert processes_of(state) == {}
