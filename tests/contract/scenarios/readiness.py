"""Type=notify, its deadline, and the watchdog."""

import asyncio
import signal
import time

from tests.contract.lab import Lab
from tests.patience import MOMENT_S
from units.backend import ActiveState, UnitJobFailed
from units.model import RestartPolicy, RestartWhen, ServiceType

NOTIFY = ServiceType.NOTIFY


async def a_start_returns_when_the_service_says_that_it_is_ready(lab: Lab) -> None:
    unit = lab.act("notify", "status=loading", "ready=serving 3 models", type=NOTIFY)
    status = await lab.start(unit)
    assert (status.active_state, status.sub_state) == (ActiveState.ACTIVE, "running")
    assert status.status_text == "serving 3 models"


async def until_then_it_is_activating_and_its_words_are_shown(lab: Lab) -> None:
    unit = lab.act("notify", "status=loading 40%", type=NOTIFY)
    await lab.install(unit)
    starting = asyncio.create_task(lab.backend.start(unit.name))
    status = await lab.until(unit.name, lambda status: status.status_text == "loading 40%")
    assert (status.active_state, status.sub_state) == (ActiveState.ACTIVATING, "start")
    await lab.backend.stop(unit.name)
    ended = await asyncio.gather(starting, return_exceptions=True)
    assert isinstance(ended[0], UnitJobFailed)
    assert await lab.backend.read_pids(unit.name) == []


async def a_service_that_is_never_ready_fails_at_its_deadline(lab: Lab) -> None:
    unit = lab.act("notify", type=NOTIFY, timeout_start_s=0.6)
    await lab.install(unit)
    began = time.monotonic()
    try:
        await lab.backend.start(unit.name)
    except UnitJobFailed:
        pass
    else:
        raise AssertionError("it was started")
    assert 0.5 <= time.monotonic() - began < 0.6 + MOMENT_S
    status = await lab.until_state(unit.name, ActiveState.FAILED)
    assert status.result == "timeout"
    assert await lab.backend.read_pids(unit.name) == []


async def a_service_that_ends_before_it_is_ready_fails_the_start(lab: Lab) -> None:
    for step, result in (("exit", "protocol"), ("crash", "exit-code")):
        unit = lab.act(*(("notify", "exit") if step == "exit" else ("exit", "4")), type=NOTIFY)
        await lab.install(unit)
        try:
            await lab.backend.start(unit.name)
        except UnitJobFailed:
            status = await lab.until_state(unit.name, ActiveState.FAILED)
            assert status.result == result
            continue
        raise AssertionError("it was started")


async def a_service_that_stops_feeding_its_watchdog_is_restarted(lab: Lab) -> None:
    policy = RestartPolicy(when=RestartWhen.ON_FAILURE, delay_s=0.05)
    unit = lab.act("notify", "ready", type=NOTIFY, watchdog_s=0.7, restart=policy)
    before = await lab.start(unit)
    after = await lab.until(
        unit.name, lambda status: status.restarts >= 1 and status.active_state is ActiveState.ACTIVE
    )
    assert after.main_pid != before.main_pid


async def the_end_by_watchdog_is_named(lab: Lab) -> None:
    unit = lab.act("notify", "ready", type=NOTIFY, watchdog_s=0.5)
    await lab.start(unit)
    assert (await lab.until_state(unit.name, ActiveState.FAILED)).result == "watchdog"


async def a_service_that_feeds_its_watchdog_lives_on(lab: Lab) -> None:
    unit = lab.act("notify", "ready", "ping", type=NOTIFY, watchdog_s=2.0)
    before = await lab.start(unit)
    # Longer than the watchdog's time twice over; there is no event to wait for when nothing is to happen.
    await asyncio.sleep(4.5)
    assert (await lab.backend.read_status(unit.name)).main_pid == before.main_pid
    await lab.backend.kill(unit.name, signal.SIGSTOP)
    assert (await lab.until_state(unit.name, ActiveState.FAILED)).result == "watchdog"
