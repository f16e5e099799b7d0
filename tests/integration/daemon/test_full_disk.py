"""A state directory without a byte to spare: what serves goes on, what is stopped stops, what cannot start says why."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from core.errors import LlmgwError
from tests.integration.daemon.stack import PATIENCE_S, Stack, running

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: the test mounts a small file system")

CONFIG = "runtimes: {a: {engine: sim, keepWarm: true}, b: {engine: sim}, c: {engine: sim}}\n"


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of one MiB."""
    path = tmp_path / "state"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", path], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)


def fill(path: Path) -> Path:
    """Take all that is left; removing the file that is returned gives it back."""
    ballast = path / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return ballast


async def two_running(stack: Stack) -> tuple[int, int]:
    return (await stack.until_runtime("a", "running")).pid, (await stack.client.start_runtime("b")).pid


@pytest.mark.parametrize("reason", ["operator", "request"])
async def test_a_start_fails_with_the_path_each_time_and_succeeds_when_there_is_room(small: Path, reason: str) -> None:
    async with running(small, CONFIG) as stack:
        pids = await two_running(stack)
        ballast = fill(small)
        for _ in range(2):  # the second one finds a runtime that has failed already
            with pytest.raises(LlmgwError, match="No space left") as caught:
                async with asyncio.timeout(PATIENCE_S):
                    await stack.client.start_runtime("c", reason=reason)
            assert caught.value.code == "disk_full" and "free space" in caught.value.hint
        assert sorted(stack.engine_pids()) == sorted(pids), "what runs is not touched"
        ballast.unlink()
        assert (await stack.client.start_runtime("c", reason=reason)).state == "running"


async def test_what_failed_of_a_full_disk_starts_by_itself_when_there_is_room(small: Path) -> None:
    disabled = CONFIG.replace("c: {engine: sim}", "c: {engine: sim, keepWarm: true, enabled: false}")
    async with running(small, disabled, unseen=True) as stack:
        await two_running(stack)
        stack.write_config(CONFIG.replace("c: {engine: sim}", "c: {engine: sim, keepWarm: true}"))
        ballast = fill(small)
        await stack.client.reload()
        await stack.until_runtime("c", "failed")
        ballast.unlink()
        await stack.until_runtime("c", "running")
        assert stack.log_text().count("runtime_failed runtime=c ") == 1


async def test_an_operators_stop_and_stop_all_do_not_wait_for_room(small: Path) -> None:
    async with running(small, CONFIG) as stack:
        await two_running(stack)
        ballast = fill(small)
        async with asyncio.timeout(PATIENCE_S):
            assert (await stack.client.stop_runtime("b")).state == "stopped"
            await stack.client.set_serving(False)
            await stack.until(lambda _: stack.engine_pids() == [])
        ballast.unlink()
        # A later pass writes what could not be written: the stop outlives the daemon after all.
        await stack.until(lambda _: "Hold=yes" in stack.unit_text("b"))
        assert stack.log_text().count("pass_failed") < 5, "it is told, and not with every pass"
        await stack.client.set_serving(True)
        await stack.until_runtime("a", "running")


async def test_a_daemon_that_starts_on_a_full_disk_adopts_what_runs_and_answers(small: Path) -> None:
    async with running(small, CONFIG, unseen=True) as stack:
        pids = await two_running(stack)
        fill(small)
        stack.kill(stack.daemon)
        stack.start_daemon()
        for name, pid in zip("ab", pids, strict=True):
            assert (await stack.until_runtime(name, "running")).pid == pid
        report = await stack.client.doctor()
        assert any(finding.check == "disks" and finding.status == "blocks" for finding in report.findings)
        # In place: there is no room for a second file.
        stack.layout.config.write_text(
            stack.config_text(CONFIG.replace("b: {engine: sim}", "b: {engine: sim, priority: 7}"))
        )
        assert (await stack.client.reload()).changed


async def test_one_unit_file_that_cannot_be_written_hinders_no_other(tmp_path: Path) -> None:
    async with running(tmp_path, CONFIG.replace("keepWarm: true", "keepWarm: false")) as stack:
        (stack.layout.units / "llmgw-engine-b.service").mkdir()
        results = await asyncio.gather(*(stack.client.start_runtime(name) for name in "abc"), return_exceptions=True)
        states = [result.code if isinstance(result, LlmgwError) else "running" for result in results]
        assert states == ["running", "storage_failed", "running"]
