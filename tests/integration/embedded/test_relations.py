"""What units mean for one another, what a service says of itself, and what a watchdog does about silence."""

import asyncio
import os
import signal
import time

import pytest

from tests.integration.embedded.house import House, house, recorded
from tests.patience import MOMENT_S
from units.backend import ActiveState, UnitFileChange, UnitJobFailed, UnitStatus
from units.embedded.procfs import read_start_ticks


async def engine_with_gate(here: House, *options: str) -> tuple[str, str]:
    """An engine that comes back by itself and upholds a gate, which is bound to it."""
    gate = "llmgw-gate-of.service"
    engine = await here.install("/bin/sleep 1000", "Restart=always", *options, unit=(f"Upholds={gate}",))
    await here.write(gate, "/bin/sleep 1000", "Restart=always", unit=(f"BindsTo={engine}", f"After={engine}"))
    return engine, gate


async def test_a_gate_goes_with_its_engine_and_comes_back_with_it() -> None:
    async with house() as here:
        engine, gate = await engine_with_gate(here)
        await here.backend.start(engine)
        before = await here.until_status(gate, lambda status: status.active_state is ActiveState.ACTIVE)
        await here.backend.kill(engine, signal.SIGKILL)
        await here.until_status(engine, lambda status: status.restarts == 1)
        await here.until_status(gate, lambda status: status.main_pid not in (0, before.main_pid))


async def test_an_upheld_gate_comes_back_when_it_alone_dies_and_is_not_upheld_by_an_engine_that_stops() -> None:
    async with house() as here:
        engine, gate = await engine_with_gate(here)
        await here.backend.start(engine)
        before = await here.until_status(gate, lambda status: status.active_state is ActiveState.ACTIVE)
        await here.backend.stop(gate)
        await here.until_status(
            gate,
            lambda status: status.active_state is ActiveState.ACTIVE and status.main_pid not in (0, before.main_pid),
        )
        changes = here.backend.changes()
        await here.backend.stop(engine)
        assert not await here.backend.read_pids(gate)
        seen: list[UnitStatus] = []
        while len(seen) < 4:
            seen.append(await anext(changes))
        assert [(status.name, status.active_state.value) for status in seen] == [
            (gate, "deactivating"),
            (gate, "inactive"),
            (engine, "deactivating"),
            (engine, "inactive"),
        ]
        assert (await here.backend.read_status(gate)).active_state is ActiveState.INACTIVE


async def test_an_upheld_unit_that_cannot_start_is_given_up_at_its_start_limit() -> None:
    async with house() as here:
        gate = "llmgw-gate-broken.service"
        engine = await here.install("/bin/sleep 1000", unit=(f"Upholds={gate}",))
        await here.write(gate, "/nonexistent", "RestartSec=10ms", unit=("StartLimitBurst=4",))
        await here.backend.start(engine)
        status = await here.until_status(gate, lambda status: status.result == "start-limit-hit")
        assert status.active_state is ActiveState.FAILED
        assert (await here.backend.read_status(engine)).active_state is ActiveState.ACTIVE


async def test_a_restart_takes_along_what_is_part_of_the_unit() -> None:
    async with house() as here:
        engine = await here.install("/bin/sleep 1000")
        part = await here.install("/bin/sleep 1000", unit=(f"PartOf={engine}", f"After={engine}"))
        await here.backend.start(engine)
        await here.backend.start(part)
        before = await here.backend.read_status(part)
        await here.backend.restart(engine)
        await here.until_status(part, lambda status: status.main_pid not in (0, before.main_pid))


async def test_orders_of_after_are_kept_and_a_circle_is_no_deadlock() -> None:
    async with house() as here:
        one, two = "llmgw-engine-one.service", "llmgw-engine-two.service"
        await here.write(one, "/bin/sleep 1000", unit=(f"After={two}", f"Wants={two}"))
        await here.write(two, "/bin/sleep 1000", unit=(f"After={one}", f"Requires={one}"))
        await here.backend.start(one)
        await here.backend.start(two)


async def test_what_needs_a_unit_that_is_missing_or_does_not_come_up_is_not_started() -> None:
    async with house() as here:
        broken = await here.install("/nonexistent")
        for needed in ("llmgw-engine-missing.service", broken):
            name = await here.install("/bin/sleep 1000", unit=(f"BindsTo={needed}", f"After={needed}"))
            with pytest.raises(UnitJobFailed, match=needed):
                await here.backend.start(name)
            assert not await here.backend.read_pids(name)


async def test_a_refused_start_does_not_end_the_wait_for_a_restart() -> None:
    async with house() as here:
        name = await here.install("/bin/false", "Restart=always", "RestartSec=500ms", unit=("StartLimitBurst=3",))
        await here.backend.start(name)
        await here.until_status(name, lambda status: status.sub_state == "auto-restart")
        await here.write(name, "/bin/false", "Restart=always", unit=("Requires=llmgw-engine-missing.service",))
        with pytest.raises(UnitJobFailed, match="missing"):
            await here.backend.start(name)
        await here.until_status(name, lambda status: status.restarts >= 2)


async def test_a_restart_of_a_unit_whose_file_is_gone_stops_it_and_says_so() -> None:
    async with house() as here:
        name = await here.install("/bin/sleep 1000", "Restart=always")
        await here.backend.start(name)
        pid = (await here.backend.read_status(name)).main_pid
        await here.backend.apply_files([UnitFileChange(name, None)])
        with pytest.raises(UnitJobFailed, match="no unit"):
            await here.backend.restart(name)
        assert read_start_ticks(pid) is None
        assert not (await here.backend.read_status(name)).loaded
        assert not list(here.layout.supervisor_state.glob(f"{name}*"))


async def test_a_device_or_a_target_is_no_obstacle() -> None:
    async with house() as here:
        relations = ("BindsTo=dev-nvidia0.device", "After=dev-nvidia0.device network-online.target")
        await here.backend.start(await here.install("/bin/sleep 1000", unit=relations))


async def test_only_the_main_process_is_believed() -> None:
    async with house() as here:
        path = here.pids_file()
        name = await here.install(
            here.misbehave(path, "--ready-from-child"), "Type=notify", "TimeoutStartSec=1", "Restart=no"
        )
        with pytest.raises(UnitJobFailed, match="timeout"):
            await here.backend.start(name)
        assert recorded(path) == []


async def test_a_ready_that_nobody_heard_does_not_kill_the_service() -> None:
    async with house() as here:
        path = here.pids_file()
        name = await here.install(here.misbehave(path, "--ready-after-s", "2"), "Type=notify", "TimeoutStartSec=6")
        start = asyncio.create_task(here.backend.start(name))
        await here.until(lambda: recorded(path) != [], "it is up")
        await here.crash()
        await asyncio.gather(start, return_exceptions=True)
        await here.until(lambda: path.with_suffix(".ready").exists(), "it has said READY to nobody")
        await here.open()
        status = await here.until_status(name, lambda status: status.active_state is ActiveState.ACTIVE)
        assert status.main_pid == recorded(path)[0][0]
        assert "not known" in status.status_text


async def test_a_service_that_feeds_its_watchdog_survives_a_supervisor_that_was_stopped() -> None:
    async with house() as here:
        path = here.pids_file()
        command = here.misbehave(path, "--ready-after-s", "0", "--ping-s", "0.1")
        name = await here.install(command, "Type=notify", "WatchdogSec=2")
        await here.backend.start(name)
        assert here.process is not None
        for _ in range(2):
            here.process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(2.5)  # past the watchdog's deadline
            here.process.send_signal(signal.SIGCONT)
            await here.backend.read_status(name)
        assert (await here.backend.read_status(name)).restarts == 0
        assert len(recorded(path)) == 1


async def test_units_under_many_mixed_orders_end_as_last_ordered() -> None:
    async with house() as here:
        paths = [here.pids_file() for _ in range(4)]
        plain = [await here.install("/bin/sleep 1000") for _ in range(16)]
        names = [*plain, *[await here.install(here.misbehave(path, "--child", "setsid")) for path in paths]]
        for name in names:
            start = asyncio.create_task(here.backend.start(name))
            stop = asyncio.create_task(here.backend.stop(name))
            again = asyncio.create_task(here.backend.start(name))
            await asyncio.gather(start, stop, again, return_exceptions=True)
        states = [await here.backend.read_status(name) for name in names]
        assert {status.active_state for status in states} == {ActiveState.ACTIVE}
        both = [
            asyncio.create_task(order(name)) for name in names for order in (here.backend.restart, here.backend.stop)
        ]
        await asyncio.gather(*both, return_exceptions=True)
        await asyncio.gather(*(here.backend.stop(name) for name in names))
        assert not any(recorded(path) for path in paths)
        for name in names:
            assert not await here.backend.read_pids(name)


async def test_a_crash_loop_without_a_limit_goes_on() -> None:
    async with house() as here:
        name = await here.install("/bin/false", "Restart=always", "RestartSec=20ms", unit=("StartLimitIntervalSec=0",))
        await here.backend.start(name)
        await here.until_status(name, lambda status: status.restarts > 20)


async def test_a_broken_file_harms_neither_others_nor_the_unit_that_runs() -> None:
    async with house() as here:
        name = await here.install("/bin/sleep 1000")
        other = await here.install("/bin/sleep 1000")
        await here.backend.start(name)
        before = await here.backend.read_status(name)
        broken = here.layout.units / name
        for text in (
            b"",
            b'[Service]\nExecStart="',
            b"\xff\xfe\0",
            os.urandom(3000),
            b"[Service]\nExecStart=/a\nExecStart=/b",
        ):
            broken.write_bytes(text)
            await here.backend.apply_files([])
            after = await here.backend.read_status(name)
            assert (after.main_pid, after.active_state) == (before.main_pid, ActiveState.ACTIVE)
            await here.backend.restart(other)
        await here.backend.stop(name)
        with pytest.raises(UnitJobFailed):
            await here.backend.start(name)


async def test_one_restart_takes_no_longer_than_its_pause() -> None:
    async with house() as here:
        name = await here.install("/bin/sleep 1000", "Restart=always", "RestartSec=100ms")
        await here.backend.start(name)
        began = time.monotonic()
        await here.backend.kill(name, signal.SIGKILL)
        await here.until_status(name, lambda status: status.restarts == 1 and status.main_pid > 0)
        assert 0.1 <= time.monotonic() - began < 0.1 + MOMENT_S
