"""Unit files: written, read back, changed and removed under running units."""

import signal

from core.errors import LlmgwError
from tests.contract.lab import Lab, lives
from units.backend import ActiveState, UnitFileChange
from units.record import parse_record
from units.render import render_unit


async def fifty_files_are_one_batch(lab: Lab) -> None:
    units = [lab.unit(("/bin/sleep", "1000")) for _ in range(50)]
    await lab.install(*units)
    files = await lab.backend.read_files()
    for unit in units:
        assert files[unit.name] == render_unit(unit)
        assert parse_record(files[unit.name]) == unit.record
        assert (await lab.backend.read_status(unit.name)).loaded
    await lab.backend.apply_files([UnitFileChange(unit.name, None) for unit in units])
    files = await lab.backend.read_files()
    for unit in units:
        assert unit.name not in files
        assert not (await lab.backend.read_status(unit.name)).loaded


async def removing_what_is_not_there_is_no_failure(lab: Lab) -> None:
    await lab.backend.apply_files([UnitFileChange("llmgw-engine-never-was.service", None)])
    await lab.backend.apply_files([])


async def a_foreign_name_is_refused_and_nothing_is_written(lab: Lab) -> None:
    unit = lab.act("say")
    for name in ("ssh.service", "../llmgw-engine-x.service", "llmgw-engine-x.service/../y", "llmgw-daemon.service"):
        try:
            await lab.backend.apply_files([UnitFileChange(unit.name, render_unit(unit)), UnitFileChange(name, "x")])
        except LlmgwError:
            assert unit.name not in await lab.backend.read_files()
            continue
        raise AssertionError(f"{name} was written")


async def a_rewritten_file_counts_from_the_next_start(lab: Lab) -> None:
    starts = lab.file("starts")
    unit = lab.act("say")
    before = await lab.start(unit)
    await lab.install(lab.act("count", str(starts), "wait", name=unit.name))
    now = await lab.backend.read_status(unit.name)
    assert (now.main_pid, now.invocation_id) == (before.main_pid, before.invocation_id)
    assert not starts.exists()
    await lab.backend.restart(unit.name)
    await lab.until_text(starts)


async def a_unit_outlives_its_file_and_can_still_be_stopped(lab: Lab) -> None:
    unit = lab.act("say")
    running = await lab.start(unit)
    await lab.backend.apply_files([UnitFileChange(unit.name, None)])
    status = await lab.backend.read_status(unit.name)
    assert (status.active_state, status.main_pid) == (ActiveState.ACTIVE, running.main_pid)
    await lab.backend.stop(unit.name)
    assert not lives(running.main_pid)


async def a_failed_unit_is_forgotten_with_its_file(lab: Lab) -> None:
    unit = lab.act("say")
    await lab.start(unit)
    await lab.backend.kill(unit.name, signal.SIGKILL)
    await lab.until_state(unit.name, ActiveState.FAILED)
    await lab.backend.apply_files([UnitFileChange(unit.name, None)])
    status = await lab.backend.read_status(unit.name)
    assert (status.loaded, status.active_state) == (False, ActiveState.INACTIVE)


async def one_broken_file_does_not_spoil_the_others(lab: Lab) -> None:
    good, bad = lab.act("say"), lab.act("say")
    await lab.install(bad)
    await lab.backend.apply_files(
        [
            UnitFileChange(bad.name, "[Service\nExecStart=nonsense\n\x01\n"),
            UnitFileChange(good.name, render_unit(good)),
        ]
    )
    await lab.install(good)
    await lab.backend.start(good.name)
    assert (await lab.backend.read_status(good.name)).active_state is ActiveState.ACTIVE
