"""The supervisor is killed, stopped, replaced: services run on, and the next one knows all about them."""

import asyncio
import os
import resource
import signal
import sys
from functools import partial
from pathlib import Path

import msgspec
import pytest

from tests.integration.embedded.house import House, house, recorded
from tests.patience import MOMENT_S
from units.backend import ActiveState, BackendLost, UnitJobFailed
from units.embedded.memory import Birth
from units.embedded.procfs import read_start_ticks

METHODS = [(), ("--no-cgroups",)]


async def main_pids(here: House, names: list[str]) -> list[int]:
    return [(await here.backend.read_status(name)).main_pid for name in names]


@pytest.mark.parametrize("arguments", METHODS)
async def test_fifty_services_are_adopted_after_a_sigkill(arguments: tuple[str, ...]) -> None:
    async with house(*arguments) as here:
        names = [await here.install("/bin/sleep 1000") for _ in range(50)]
        await asyncio.gather(*(here.backend.start(name) for name in names))
        before = await main_pids(here, names)
        await here.crash()
        await here.open()
        assert await main_pids(here, names) == before
        states = {(await here.backend.read_status(name)).active_state for name in names}
        assert states == {ActiveState.ACTIVE}
        await asyncio.gather(*(here.backend.stop(name) for name in names))
        assert not [pid for pid in before if read_start_ticks(pid) is not None]


@pytest.mark.parametrize("arguments", METHODS)
async def test_a_service_that_died_meanwhile_is_noticed_and_brought_back(arguments: tuple[str, ...]) -> None:
    async with house(*arguments) as here:
        path = here.pids_file()
        name = await here.install(here.misbehave(path, "--child", "setsid"), "Restart=on-failure")
        await here.backend.start(name)
        await here.until(lambda: len(recorded(path)) == 2, "both are up")
        first = recorded(path)
        await here.crash()
        os.kill(first[0][0], signal.SIGKILL)
        await here.open()
        status = await here.until_status(name, lambda status: status.restarts == 1 and status.main_pid > 0)
        await here.until(lambda: len(recorded(path)) == 2, "the new ones are up, the old ones gone")
        assert status.main_pid in {pid for pid, _ in recorded(path)}
        assert not {pid for pid, _ in first} & {pid for pid, _ in recorded(path)}


@pytest.mark.parametrize(("status", "state"), [(7, ActiveState.FAILED), (0, ActiveState.INACTIVE)])
async def test_the_exit_status_of_an_adopted_service_is_known(status: int, state: ActiveState) -> None:
    async with house() as here:
        go = here.folder / "go"
        os.mkfifo(go)
        name = await here.install(f"/bin/sh -c 'read line < {go}; exit {status}'")
        await here.backend.start(name)
        await here.crash()
        await here.open()
        go.write_text("now\n")
        found = await here.until_status(name, lambda status: status.active_state is state)
        assert found.exec_main_status == status


async def test_a_pid_that_somebody_else_has_now_is_left_alone() -> None:
    async with house() as here:
        name = await here.install("/bin/sleep 1000", "Restart=no")
        await here.backend.start(name)
        await asyncio.sleep(2 / os.sysconf("SC_CLK_TCK"))  # a process is told from another by its pid and this clock
        innocent = await asyncio.create_subprocess_exec("/bin/sleep", "1000")
        await here.crash()
        birth_file = here.layout.supervisor_state / f"{name}.birth"
        birth = msgspec.json.decode(birth_file.read_bytes(), type=Birth)
        os.kill(birth.pid, signal.SIGKILL)
        forged = msgspec.structs.replace(birth, pid=innocent.pid)
        birth_file.write_bytes(msgspec.json.encode(forged))
        await here.open()
        await here.until_status(name, lambda status: status.active_state is ActiveState.FAILED)
        assert innocent.returncode is None and read_start_ticks(innocent.pid) is not None
        innocent.kill()
        await innocent.wait()


@pytest.mark.parametrize("arguments", METHODS)
async def test_a_supervisor_killed_in_the_middle_of_starts_leaves_each_service_running_once(
    arguments: tuple[str, ...],
) -> None:
    async with house(*arguments) as here:
        paths = [here.pids_file() for _ in range(15)]
        names = [await here.install(here.misbehave(path)) for path in paths]
        for pause_s in (0.0, 0.01, 0.03):
            starts = [asyncio.create_task(here.backend.start(name)) for name in names]
            await asyncio.sleep(pause_s)
            await here.crash()
            results = await asyncio.gather(*starts, return_exceptions=True)
            assert all(isinstance(result, BackendLost | None) for result in results)
            await here.open()
        await asyncio.gather(*(here.backend.start(name) for name in names))
        mains = await main_pids(here, names)
        for path, main in zip(paths, mains, strict=True):
            await here.until(partial(_is_alone, path, main), "one process each")


def _is_alone(path: Path, main: int) -> bool:
    return recorded(path) == [(main, "main")]


async def test_eight_restarts_of_the_supervisor_cost_nothing() -> None:
    async with house() as here:
        names = [await here.install("/bin/sleep 1000", "Type=exec") for _ in range(5)]
        await asyncio.gather(*(here.backend.start(name) for name in names))
        before = await main_pids(here, names)
        descriptors = []
        for round_number in range(8):
            await here.end(signal.SIGTERM if round_number % 2 else signal.SIGKILL)
            await here.open()
            assert here.process is not None
            descriptors.append(len(os.listdir(f"/proc/{here.process.pid}/fd")))
        assert await main_pids(here, names) == before
        assert max(descriptors) - min(descriptors) <= 1
        assert len(list(here.layout.supervisor_state.iterdir())) == 2 * len(names) + 3


@pytest.mark.parametrize("arguments", METHODS)
async def test_an_ordered_stop_is_finished_by_the_next_supervisor(arguments: tuple[str, ...]) -> None:
    async with house(*arguments) as here:
        path = here.pids_file()
        name = await here.install(here.misbehave(path, "--ignore-term"), "TimeoutStopSec=2", "Restart=always")
        await here.backend.start(name)
        await here.until(lambda: len(recorded(path)) == 1, "it is up")
        stop = asyncio.create_task(here.backend.stop(name))
        await here.until_status(name, lambda status: status.active_state is ActiveState.DEACTIVATING)
        await here.crash()
        with pytest.raises(BackendLost):
            await stop
        await here.open()
        await here.until_status(name, lambda status: status.sub_state in ("dead", "failed"))
        assert recorded(path) == []


async def test_the_start_limit_counts_over_a_restart_of_the_supervisor() -> None:
    async with house() as here:
        limits = ("StartLimitBurst=3", "StartLimitIntervalSec=600")
        name = await here.install("/bin/false", "Restart=always", unit=limits)
        await here.backend.start(name)
        await here.until_status(name, lambda status: status.active_state is ActiveState.FAILED)
        await here.crash()
        await here.open()
        status = await here.backend.read_status(name)
        assert (status.active_state, status.result) == (ActiveState.FAILED, "start-limit-hit")
        with pytest.raises(UnitJobFailed):
            await here.backend.start(name)


async def test_a_wait_for_a_restart_goes_on_in_the_next_supervisor() -> None:
    async with house() as here:
        name = await here.install("/bin/false", "Restart=always", "RestartSec=2", unit=("StartLimitBurst=2",))
        await here.backend.start(name)
        await here.until_status(name, lambda status: status.sub_state == "auto-restart")
        await here.crash()
        await here.open()
        await here.until_status(name, lambda status: status.result == "start-limit-hit")


async def test_records_of_another_boot_mean_nothing() -> None:
    async with house() as here:
        name = await here.install("/bin/sleep 1000", "Restart=always")
        await here.backend.start(name)
        await here.backend.stop(name)
        await here.crash()
        state = here.layout.supervisor_state
        record = (state / f"{name}.json").read_text()
        old = record.replace(Path("/proc/sys/kernel/random/boot_id").read_text().strip(), "another")
        (state / f"{name}.json").write_text(old.replace('"inactive"', '"active"'))
        (state / f"{name}.birth").write_bytes(
            msgspec.json.encode(Birth(boot_id="another", pid=os.getpid(), start_ticks=1, invocation_id="0" * 32))
        )
        await here.open()
        assert (await here.backend.read_status(name)).active_state is ActiveState.INACTIVE


DAMAGES = [
    b"",
    b"{",
    b"\0" * 100,
    b'{"boot_id": 3}',
    b'{"boot_id": "BOOT", "pid": 99999999999999999999, "start_ticks": 1, "invocation_id": "x"}',
    b'{"boot_id": "BOOT", "pid": -1, "start_ticks": 1, "invocation_id": "00000000000000000000000000000000"}',
    b'{"boot_id": "BOOT", "pid": 1, "start_ticks": 1, "invocation_id": "00000000000000000000000000000000"}',
    b'{"boot_id": "BOOT", "pid": 4000, "start_ticks": 1, "invocation_id": "../../../../../../../../../tmp/"}',
    b'{"boot_id": "BOOT", "active_state": "wrong", "sub_state": "", "result": "success", "is_wanted": true}',
    os.urandom(500),
]


async def test_damaged_records_are_no_obstacle() -> None:
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()
    async with house() as here:
        names = [await here.install("/bin/sleep 1000") for _ in DAMAGES]
        await here.crash()
        for name, damage in zip(names, DAMAGES, strict=True):
            for suffix in (".json", ".birth"):
                path = here.layout.supervisor_state / f"{name}{suffix}"
                path.write_bytes(damage.replace(b"BOOT", boot_id))
        (here.layout.supervisor_state / "cgroup").write_bytes(b"/nonexistent/\xff")
        await here.open()
        for name in names:
            await here.backend.start(name)
            assert (await here.backend.read_status(name)).active_state is ActiveState.ACTIVE


async def test_a_second_supervisor_for_the_same_state_is_refused() -> None:
    async with house() as here:
        second = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "units.embedded", "--state", str(here.folder),
            stderr=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[3],
        )  # fmt: skip
        _, said = await second.communicate()
        assert second.returncode == 5
        assert b"locked" in said
        assert here.backend.is_connected


async def test_a_sigterm_to_the_supervisor_leaves_services_alone_and_a_shutdown_stops_them_side_by_side() -> None:
    async with house() as here:
        paths = [here.pids_file() for _ in range(8)]
        names = [await here.install(here.misbehave(path, "--term-takes-s", "2"), "TimeoutStopSec=60") for path in paths]
        await asyncio.gather(*(here.backend.start(name) for name in names))
        await here.until(lambda: all(recorded(path) for path in paths), "all are up")
        await here.end(signal.SIGTERM)
        assert all(recorded(path) for path in paths)
        await here.open()
        loop = asyncio.get_running_loop()
        began = loop.time()
        await here.backend.shutdown()
        assert loop.time() - began < 2 * 2 + MOMENT_S
        assert not any(recorded(path) for path in paths)
        assert here.process is not None
        assert await here.process.wait() == 0


@pytest.mark.parametrize("arguments", METHODS)
async def test_a_supervisor_that_ran_out_of_descriptors_takes_up_its_units_again(arguments: tuple[str, ...]) -> None:
    async with house(*arguments) as here:
        path = here.pids_file()
        dying = await here.install(here.misbehave(path, "--child", "setsid"), "Restart=always")
        running = await here.install("/bin/sleep 1000", "Restart=always")
        for name in (dying, running):
            await here.backend.start(name)
        await here.until(lambda: len(recorded(path)) == 2, "both are up")
        before = await main_pids(here, [dying, running])
        assert here.process is not None
        old = resource.prlimit(
            here.process.pid, resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        )
        os.kill(before[0], signal.SIGKILL)
        await here.until(lambda: "Too many open files" in here.said(), "it is out of descriptors")
        resource.prlimit(here.process.pid, resource.RLIMIT_NOFILE, old)
        await here.until_status(dying, lambda status: status.main_pid not in (0, before[0]))
        assert (await main_pids(here, [running])) == before[1:]
        await here.backend.stop(dying)
        assert recorded(path) == []
