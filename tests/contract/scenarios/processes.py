"""Nothing of a unit survives its stop, however it hides."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from tests.contract.lab import Lab, lives
from tests.patience import MOMENT_S
from units.backend import ActiveState, UnitStatus
from units.model import KillMode, RestartPolicy, RestartWhen

HIDINGS = ("setsid", "double-fork", "clean-env", "deaf")


async def a_stop_leaves_no_descendant_however_it_hides(lab: Lab) -> None:
    for how in HIDINGS:
        hidden = lab.file(how)
        unit = lab.act("brood", str(hidden), how, timeout_stop_s=0.5)
        await lab.start(unit)
        pid = int(await lab.until_text(hidden))
        assert lives(pid), how
        assert pid in await lab.backend.read_pids(unit.name), how
        await lab.backend.stop(unit.name)
        assert not lives(pid), how


async def when_the_main_process_dies_its_children_go_before_it_comes_back(lab: Lab) -> None:
    policy = RestartPolicy(when=RestartWhen.ALWAYS, delay_s=0.1, limit_burst=50)
    for how in HIDINGS:
        hidden = lab.file(how)
        unit = lab.act("brood", str(hidden), how, timeout_stop_s=0.5, restart=policy)
        before = await lab.start(unit)
        pid = int(await lab.until_text(hidden))
        hidden.unlink()
        os.kill(before.main_pid, signal.SIGKILL)  # only the main process, as a crash does
        after = await lab.until(unit.name, _is_another_life(before), f"back ({how})")
        assert not lives(pid), how
        assert int(await lab.until_text(hidden)) != pid
        assert lives(after.main_pid)


def _is_another_life(before: UnitStatus) -> Callable[[UnitStatus], bool]:
    return lambda status: status.main_pid not in (0, before.main_pid)


async def when_the_main_process_exits_its_children_go_too(lab: Lab) -> None:
    for how in HIDINGS:
        hidden = lab.file(how)
        unit = lab.act("orphan", str(hidden), how, timeout_stop_s=0.5)
        await lab.start(unit)
        pid = int(await lab.until_text(hidden))
        await lab.until_state(unit.name, ActiveState.FAILED)
        assert not lives(pid), how
        assert await lab.backend.read_pids(unit.name) == []


async def a_service_that_ignores_sigterm_is_killed_at_its_deadline(lab: Lab) -> None:
    unit = lab.act("deaf", timeout_stop_s=0.7)
    running = await lab.start(unit)
    # Until the interpreter has come to ignoring it, a SIGTERM would simply work.
    while not _ignores_term(running.main_pid):
        await lab.backend.read_status(unit.name)
    began = time.monotonic()
    await lab.backend.stop(unit.name)
    assert 0.6 <= time.monotonic() - began < 0.7 + MOMENT_S
    assert not lives(running.main_pid)
    status = await lab.backend.read_status(unit.name)
    assert (status.active_state, status.result) == (ActiveState.FAILED, "timeout")


def _ignores_term(pid: int) -> bool:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    mask = next(line for line in lines if line.startswith("SigIgn:"))
    return bool(int(mask.split()[1], 16) & 1 << (signal.SIGTERM - 1))


async def a_mixed_stop_asks_nobody_but_the_main_process(lab: Lab) -> None:
    heard = lab.file("heard")
    unit = lab.act("signals", str(heard), "2", str(int(signal.SIGTERM)), timeout_stop_s=1.0, kill_mode=KillMode.MIXED)
    running = await lab.start(unit)
    await lab.until_text(Path(f"{heard}.up"), lambda text: len(text.split()) == 3)
    await lab.backend.stop(unit.name)  # nobody ends of itself, so all is killed at the deadline
    told = heard.read_text().split() if heard.exists() else []
    assert set(told) <= {str(running.main_pid)}, told
    assert await lab.backend.read_pids(unit.name) == []


async def what_a_mixed_stop_leaves_is_killed_once_the_main_process_has_ended(lab: Lab) -> None:
    hidden = lab.file("left")
    unit = lab.act("brood", str(hidden), "deaf", timeout_stop_s=600.0, kill_mode=KillMode.MIXED)
    await lab.start(unit)
    pid = int(await lab.until_text(hidden))
    await lab.backend.stop(unit.name)
    assert not lives(pid)
    status = await lab.backend.read_status(unit.name)
    assert (status.active_state, status.result) == (ActiveState.INACTIVE, "success")


async def a_frozen_service_is_stopped_without_waiting(lab: Lab) -> None:
    unit = lab.act("say", timeout_stop_s=60.0)
    running = await lab.start(unit)
    await lab.backend.kill(unit.name, signal.SIGSTOP)
    began = time.monotonic()
    await lab.backend.stop(unit.name)
    assert time.monotonic() - began < 30
    assert not lives(running.main_pid)
