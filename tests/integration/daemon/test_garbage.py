"""Whatever lies where the daemon reads: it starts, keeps what runs, and can still start and stop.

All files of the state directory are damaged in the same way at once, while no daemon runs.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from core.errors import LlmgwError
from tests.integration.daemon.stack import Stack, running
from units.names import engine_unit_name

CONFIG = "runtimes: {a: {engine: sim, keepWarm: true}, b: {engine: sim}}\n"


def write(data: bytes) -> Callable[[Path], None]:
    return lambda path: _replace(path, lambda: path.write_bytes(data))


def _replace(path: Path, make: Callable[[], object]) -> None:
    path.unlink(missing_ok=True)
    make()


DAMAGES: dict[str, Callable[[Path], None]] = {
    "empty": write(b""),
    "binary": write(bytes(range(256)) * 64),
    "no text": write(b"\xff\xfe{\xed\xa0\x80"),
    "half of it": lambda path: os.truncate(path, path.stat().st_size // 2),
    "another type": write(b'["list", 1, null]'),
    "deep": write(b"[" * 100_000),
    "huge number": write(b'{"a": {"spec_hash": "x", "host_mib": 1' + b"0" * 400 + b"}}"),
    "large": write(b"x" * (8 << 20)),
    "folder": lambda path: _replace(path, path.mkdir),
    "dangling link": lambda path: _replace(path, lambda: path.symlink_to("/nowhere/at/all")),
    "loop": lambda path: _replace(path, lambda: path.symlink_to(path)),
    "gone": lambda path: path.unlink(),
}


def state_files(stack: Stack) -> list[Path]:
    """What the daemon keeps for itself; a file that was not written yet is made, so that it is damaged too."""
    layout = stack.layout
    names = ("config.last-good", "estimates.json", "firewall.json", "hardware-cleared.json")
    files = [layout.state / name for name in names]
    for path in files:
        path.touch()
    return files


@pytest.mark.parametrize("damage", DAMAGES)
async def test_damaged_state_costs_at_most_its_memory(tmp_path: Path, damage: str) -> None:
    async with running(tmp_path, CONFIG) as stack:
        pid = (await stack.until_runtime("a", "running")).pid
        stack.kill(stack.daemon)
        for path in state_files(stack):
            DAMAGES[damage](path)
        stack.start_daemon()
        assert (await stack.until_runtime("a", "running")).pid == pid
        assert (await stack.client.start_runtime("b")).state == "running"
        assert (await stack.client.stop_runtime("a")).state == "stopped"
        assert "Traceback" not in stack.log_text() and "internal_error" not in stack.log_text()


@pytest.mark.parametrize("damage", sorted(DAMAGES.keys() - {"folder"}))
async def test_a_damaged_unit_file_is_told_and_hinders_no_other_runtime(tmp_path: Path, damage: str) -> None:
    async with running(tmp_path, CONFIG) as stack:
        pid = (await stack.until_runtime("a", "running")).pid
        await stack.client.start_runtime("b")
        stack.kill(stack.daemon)
        DAMAGES[damage](stack.layout.units / engine_unit_name("b"))
        stack.start_daemon()
        assert (await stack.until_runtime("a", "running")).pid == pid
        assert (await stack.client.restart_runtime("a")).state == "running"
        findings = [finding for finding in (await stack.client.doctor()).findings if finding.check == "units"]
        is_named = any(engine_unit_name("b") in finding.found for finding in findings)
        assert is_named == (damage not in ("gone", "dangling link", "loop")), "a link is not a file of ours"
        # What runs under the damaged file is nobody's: a start replaces it.
        assert (await stack.client.start_runtime("b")).state == "running"
        await stack.until(lambda _: len(stack.engine_pids()) == 2)
        assert "Traceback" not in stack.log_text() and "internal_error" not in stack.log_text()


@pytest.mark.parametrize("damage", sorted(DAMAGES.keys() - {"folder"}))
async def test_a_damaged_key_of_an_engine_is_made_anew_with_its_next_start(tmp_path: Path, damage: str) -> None:
    async with running(tmp_path, CONFIG) as stack:
        await stack.until_runtime("a", "running")
        await stack.client.stop_runtime("a")
        DAMAGES[damage](stack.layout.keys / "a.key")
        assert (await stack.client.start_runtime("a")).state == "running"
        key = (stack.layout.keys / "a.key").read_text()
        assert key.startswith("sk-") and len(key) == 52


async def test_a_folder_in_the_place_of_a_file_is_an_error_with_its_path(tmp_path: Path) -> None:
    async with running(tmp_path, CONFIG) as stack:
        await stack.until_runtime("a", "running")
        for name, path in (("a", stack.layout.keys / "a.key"), ("b", stack.layout.units / engine_unit_name("b"))):
            await stack.client.stop_runtime(name)
            DAMAGES["folder"](path)
            with pytest.raises(LlmgwError, match=f"{path}: Is a directory") as caught:
                await stack.client.start_runtime(name)
            assert caught.value.code == "storage_failed"
