"""Exits, crashes, restarts, and the start limit."""

import signal

from tests.contract.lab import Lab, lives
from units.backend import ActiveState, UnitJobFailed
from units.model import RestartPolicy, RestartWhen

LIMITED = RestartPolicy(when=RestartWhen.ALWAYS, delay_s=0.05, limit_burst=3, limit_interval_s=60.0)
SOON = RestartPolicy(when=RestartWhen.ALWAYS, delay_s=0.1, limit_burst=20, limit_interval_s=10.0)
LATER = RestartPolicy(when=RestartWhen.ALWAYS, delay_s=60.0)


async def _refused(lab: Lab, name: str) -> UnitJobFailed:
    try:
        await lab.backend.start(name)
    except UnitJobFailed as error:
        return error
    raise AssertionError(f"{name} was started")


async def a_program_that_does_not_exist_fails_the_start_with_203(lab: Lab) -> None:
    unit = lab.unit(("/nonexistent/engine",))
    await lab.install(unit)
    error = await _refused(lab, unit.name)
    assert unit.name in error.message
    status = await lab.until_state(unit.name, ActiveState.FAILED)
    assert (status.result, status.exec_main_status, status.main_pid) == ("exit-code", 203, 0)


async def a_program_that_may_not_be_run_fails_the_start(lab: Lab) -> None:
    path = lab.file("plain")
    path.write_text("no program")
    unit = lab.unit((str(path),))
    await lab.install(unit)
    await _refused(lab, unit.name)
    assert (await lab.until_state(unit.name, ActiveState.FAILED)).exec_main_status == 203


async def a_working_directory_that_does_not_exist_fails_the_start_with_200(lab: Lab) -> None:
    unit = lab.act("say", working_directory="/nonexistent/home")
    await lab.install(unit)
    await _refused(lab, unit.name)
    assert (await lab.until_state(unit.name, ActiveState.FAILED)).exec_main_status == 200


async def an_exit_status_is_kept(lab: Lab) -> None:
    unit = lab.act("exit", "7")
    await lab.start(unit)
    status = await lab.until_state(unit.name, ActiveState.FAILED)
    assert (status.sub_state, status.result, status.exec_main_status) == ("failed", "exit-code", 7)
    assert status.main_pid == 0


async def a_deadly_signal_is_kept(lab: Lab) -> None:
    unit = lab.act("say")
    await lab.start(unit)
    await lab.backend.kill(unit.name, signal.SIGKILL)
    status = await lab.until_state(unit.name, ActiveState.FAILED)
    assert (status.result, status.exec_main_status) == ("signal", int(signal.SIGKILL))


async def a_clean_exit_is_no_failure(lab: Lab) -> None:
    policy = RestartPolicy(when=RestartWhen.ON_FAILURE, delay_s=0.05)
    unit = lab.act("exit", "0", restart=policy)
    await lab.install(unit)
    await lab.backend.start(unit.name)
    status = await lab.until(unit.name, lambda status: status.sub_state == "dead")
    assert (status.active_state, status.result, status.restarts) == (ActiveState.INACTIVE, "success", 0)


async def a_crashed_unit_comes_back_by_itself(lab: Lab) -> None:
    unit = lab.act("say", restart=SOON)
    before = await lab.start(unit)
    await lab.backend.kill(unit.name, signal.SIGKILL)
    after = await lab.until(
        unit.name, lambda status: status.active_state is ActiveState.ACTIVE and status.main_pid != before.main_pid
    )
    assert after.restarts == 1
    assert after.invocation_id != before.invocation_id
    assert not lives(before.main_pid)


async def a_unit_that_waits_for_its_restart_is_activating_and_can_be_stopped(lab: Lab) -> None:
    starts = lab.file("starts")
    unit = lab.act("count", str(starts), "1", restart=LATER)
    await lab.start(unit)
    await lab.until(unit.name, lambda status: status.sub_state == "auto-restart")
    await lab.backend.stop(unit.name)
    status = await lab.backend.read_status(unit.name)
    assert status.active_state in (ActiveState.INACTIVE, ActiveState.FAILED)
    assert starts.read_text().count("\n") == 1


async def a_restart_order_cuts_the_waiting_short(lab: Lab) -> None:
    starts = lab.file("starts")
    unit = lab.act("count", str(starts), "1", restart=LATER)
    await lab.start(unit)
    await lab.until(unit.name, lambda status: status.sub_state == "auto-restart")
    await lab.backend.restart(unit.name)
    await lab.until_text(starts, lambda text: text.count("\n") == 2)


async def past_the_start_limit_a_unit_is_failed_until_it_is_reset(lab: Lab) -> None:
    starts = lab.file("starts")
    unit = lab.act("count", str(starts), "3", restart=LIMITED)
    await lab.start(unit)
    status = await lab.until_state(unit.name, ActiveState.FAILED)
    # systemd 252 keeps the reason of the last exit, later ones say start-limit-hit.
    assert status.result in ("exit-code", "start-limit-hit")
    assert starts.read_text().count("\n") == 3
    await _refused(lab, unit.name)
    assert starts.read_text().count("\n") == 3
    await lab.backend.reset_failed(unit.name)
    assert (await lab.backend.read_status(unit.name)).active_state is ActiveState.INACTIVE
    await lab.backend.start(unit.name)
    await lab.until_text(starts, lambda text: text.count("\n") == 6)
    assert (await lab.until_state(unit.name, ActiveState.FAILED)).restarts >= 2


async def a_failed_unit_can_be_started_again(lab: Lab) -> None:
    unit = lab.act("exit", "1")
    await lab.start(unit)
    failed = await lab.until_state(unit.name, ActiveState.FAILED)
    await lab.backend.start(unit.name)
    again = await lab.until(unit.name, lambda status: status.invocation_id != failed.invocation_id)
    assert again.invocation_id
    await lab.until_state(unit.name, ActiveState.FAILED)


async def stopping_a_failed_unit_keeps_it_failed(lab: Lab) -> None:
    unit = lab.act("exit", "1")
    await lab.start(unit)
    await lab.until_state(unit.name, ActiveState.FAILED)
    await lab.backend.stop(unit.name)
    assert (await lab.backend.read_status(unit.name)).active_state is ActiveState.FAILED
