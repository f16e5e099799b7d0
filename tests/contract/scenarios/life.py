"""Start, stop, restart, signals, and what is told about them."""

import asyncio
import signal

from tests.contract.lab import Lab, close, lives, next_of
from units.backend import ActiveState, UnitJobFailed


async def a_started_unit_is_active_with_one_process(lab: Lab) -> None:
    unit = lab.act("say")
    await lab.install(unit)
    before = await lab.backend.read_status(unit.name)
    assert (before.loaded, before.active_state, before.main_pid) == (True, ActiveState.INACTIVE, 0)
    await lab.backend.start(unit.name)
    after = await lab.backend.read_status(unit.name)
    assert (after.active_state, after.sub_state, after.result) == (ActiveState.ACTIVE, "running", "success")
    assert await lab.backend.read_pids(unit.name) == [after.main_pid]
    assert lives(after.main_pid)
    assert after.invocation_id


async def starting_what_runs_changes_nothing(lab: Lab) -> None:
    unit = lab.act("say")
    first = await lab.start(unit)
    await lab.backend.start(unit.name)
    assert await lab.backend.read_status(unit.name) == first


async def ten_starts_at_once_are_one_start(lab: Lab) -> None:
    starts = lab.file("starts")
    unit = lab.act("count", str(starts), "wait")
    await lab.install(unit)
    await asyncio.gather(*(lab.backend.start(unit.name) for _ in range(10)))
    text = await lab.until_text(starts)
    assert text.split() == [str((await lab.backend.read_status(unit.name)).main_pid)]


async def a_stopped_unit_leaves_no_process(lab: Lab) -> None:
    unit = lab.act("say")
    running = await lab.start(unit)
    await lab.backend.stop(unit.name)
    status = await lab.backend.read_status(unit.name)
    assert (status.active_state, status.sub_state, status.result) == (ActiveState.INACTIVE, "dead", "success")
    assert status.main_pid == 0
    assert await lab.backend.read_pids(unit.name) == []
    assert not lives(running.main_pid)


async def stopping_what_does_not_run_or_exist_is_no_failure(lab: Lab) -> None:
    unit = lab.act("say")
    await lab.install(unit)
    await lab.backend.stop(unit.name)
    await lab.backend.stop("llmgw-engine-nobody-knows-it.service")
    await lab.backend.kill("llmgw-engine-nobody-knows-it.service", signal.SIGTERM)
    await lab.backend.reset_failed("llmgw-engine-nobody-knows-it.service")
    assert await lab.backend.read_pids("llmgw-engine-nobody-knows-it.service") == []


async def a_restart_is_a_new_life(lab: Lab) -> None:
    unit = lab.act("say")
    before = await lab.start(unit)
    await lab.backend.restart(unit.name)
    after = await lab.backend.read_status(unit.name)
    assert after.active_state is ActiveState.ACTIVE
    assert after.main_pid != before.main_pid
    assert after.invocation_id != before.invocation_id
    assert not lives(before.main_pid)


async def restarting_what_is_stopped_starts_it(lab: Lab) -> None:
    unit = lab.act("say")
    await lab.install(unit)
    await lab.backend.restart(unit.name)
    assert (await lab.backend.read_status(unit.name)).active_state is ActiveState.ACTIVE


async def a_unit_nobody_knows_is_not_loaded_and_cannot_be_started(lab: Lab) -> None:
    name = "llmgw-engine-nobody-knows-it.service"
    status = await lab.backend.read_status(name)
    assert (status.loaded, status.active_state, status.main_pid) == (False, ActiveState.INACTIVE, 0)
    for order in (lab.backend.start, lab.backend.restart):
        try:
            await order(name)
        except UnitJobFailed:
            continue
        raise AssertionError("it was started")


async def a_signal_reaches_every_process_of_the_unit(lab: Lab) -> None:
    seen = lab.file("seen")
    unit = lab.act("signals", str(seen), "3", str(int(signal.SIGUSR1)))
    await lab.start(unit)
    ready = await lab.until_text(seen.with_name(f"{seen.name}.up"), lambda text: text.count("\n") == 4)
    await lab.backend.kill(unit.name, signal.SIGUSR1)
    text = await lab.until_text(seen, lambda text: text.count("\n") == 4)
    assert set(text.split()) == set(ready.split())


async def a_service_may_end_in_its_own_way_when_it_is_stopped(lab: Lab) -> None:
    farewell = lab.file("farewell")
    unit = lab.act("polite", str(farewell))
    await lab.start(unit)
    await lab.until_text(farewell.with_name(f"{farewell.name}.up"))
    await lab.backend.stop(unit.name)
    assert farewell.read_text() == "bye\n"
    status = await lab.backend.read_status(unit.name)
    assert (status.active_state, status.result) == (ActiveState.INACTIVE, "success")


async def each_change_is_told(lab: Lab) -> None:
    unit = lab.act("say")
    await lab.install(unit)
    changes = lab.backend.changes()
    other = lab.backend.changes()
    try:
        for order, state in (
            (lab.backend.start, ActiveState.ACTIVE),
            (lab.backend.stop, ActiveState.INACTIVE),
            (lab.backend.start, ActiveState.ACTIVE),
        ):
            await order(unit.name)
            for listener in (changes, other):
                while (await next_of(listener, unit.name)).active_state is not state:
                    pass
        await lab.backend.kill(unit.name, signal.SIGKILL)
        while (await next_of(changes, unit.name)).active_state is not ActiveState.FAILED:
            pass
    finally:
        await close(changes)
        await close(other)


async def fifty_units_start_and_stop_at_once(lab: Lab) -> None:
    units = [lab.unit(("/bin/sleep", "1000")) for _ in range(50)]
    await lab.install(*units)
    await asyncio.gather(*(lab.backend.start(unit.name) for unit in units))
    statuses = await asyncio.gather(*(lab.backend.read_status(unit.name) for unit in units))
    assert {status.active_state for status in statuses} == {ActiveState.ACTIVE}
    assert len({status.main_pid for status in statuses}) == 50
    await asyncio.gather(*(lab.backend.stop(unit.name) for unit in units))
    assert not any(lives(status.main_pid) for status in statuses)


async def orders_that_contradict_each_other_end_in_a_state_that_is_true(lab: Lab) -> None:
    unit = lab.act("say")
    await lab.install(unit)
    orders = [lab.backend.start, lab.backend.stop, lab.backend.restart, lab.backend.stop, lab.backend.start] * 3
    ended = await asyncio.gather(*(order(unit.name) for order in orders), return_exceptions=True)
    assert all(end is None or isinstance(end, UnitJobFailed) for end in ended), ended
    await lab.backend.stop(unit.name)
    assert await lab.backend.read_pids(unit.name) == []
    await lab.backend.start(unit.name)
    status = await lab.backend.read_status(unit.name)
    assert await lab.backend.read_pids(unit.name) == [status.main_pid]
