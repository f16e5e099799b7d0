"""Units that depend on each other: an engine and its gate."""

import asyncio
import signal
from dataclasses import replace

from tests.contract.lab import ONCE, Lab
from units.backend import ActiveState
from units.model import RestartPolicy, RestartWhen, ServiceType, ServiceUnit

SOON = RestartPolicy(when=RestartWhen.ALWAYS, delay_s=0.1, limit_burst=20)


def _pair(lab: Lab, *, restart: RestartPolicy = ONCE, upholds: bool = False) -> tuple[ServiceUnit, ServiceUnit]:
    gate = lab.gate(("/bin/sleep", "1000"))
    engine = lab.unit(("/bin/sleep", "1000"), restart=restart, upholds=(gate.name,) if upholds else ())
    gate = replace(gate, binds_to=(engine.name,), after=(engine.name,))
    return engine, gate


async def a_gate_brings_its_engine_up(lab: Lab) -> None:
    engine, gate = _pair(lab)
    await lab.install(engine, gate)
    await lab.backend.start(gate.name)
    assert (await lab.backend.read_status(engine.name)).active_state is ActiveState.ACTIVE
    assert (await lab.backend.read_status(gate.name)).active_state is ActiveState.ACTIVE


async def a_gate_goes_when_its_engine_dies(lab: Lab) -> None:
    engine, gate = _pair(lab)
    await lab.install(engine, gate)
    await lab.backend.start(gate.name)
    await lab.backend.kill(engine.name, signal.SIGKILL)
    status = await lab.until_state(gate.name, ActiveState.INACTIVE)
    assert status.main_pid == 0
    assert (await lab.backend.read_status(engine.name)).active_state is ActiveState.FAILED


async def a_gate_goes_when_its_engine_is_stopped(lab: Lab) -> None:
    engine, gate = _pair(lab)
    await lab.install(engine, gate)
    await lab.backend.start(gate.name)
    await lab.backend.stop(engine.name)
    await lab.until_state(gate.name, ActiveState.INACTIVE)


async def stopping_a_gate_leaves_its_engine_alone(lab: Lab) -> None:
    engine, gate = _pair(lab)
    await lab.install(engine, gate)
    await lab.backend.start(gate.name)
    await lab.backend.stop(gate.name)
    assert (await lab.backend.read_status(engine.name)).active_state is ActiveState.ACTIVE


async def a_gate_starts_after_its_engine_is_ready(lab: Lab) -> None:
    """`After=` with a notify engine: the gate must not run before the engine has said so."""
    order = lab.file("order")
    _, gate_name = (unit.name for unit in _pair(lab))
    engine = lab.act("notify", type=ServiceType.NOTIFY)
    gate = lab.act("count", str(order), "wait", name=gate_name, binds_to=(engine.name,), after=(engine.name,))
    await lab.install(engine, gate)
    starting = asyncio.create_task(lab.backend.start(gate.name))
    await lab.until_state(engine.name, ActiveState.ACTIVATING)
    assert (await lab.backend.read_status(gate.name)).main_pid == 0
    await lab.backend.stop(engine.name)
    ended = await asyncio.gather(starting, return_exceptions=True)
    assert isinstance(ended[0], Exception)
    assert not order.exists()


async def an_upheld_gate_comes_with_its_engine_and_comes_back(lab: Lab) -> None:
    engine, gate = _pair(lab, restart=SOON, upholds=True)
    await lab.install(engine, gate)
    await lab.backend.start(engine.name)
    first = await lab.until(gate.name, lambda status: status.main_pid > 0)
    await lab.backend.kill(gate.name, signal.SIGKILL)
    second = await lab.until(gate.name, lambda status: status.main_pid not in (0, first.main_pid))
    await lab.backend.kill(engine.name, signal.SIGKILL)
    await lab.until(gate.name, lambda status: status.main_pid not in (0, second.main_pid))
    await lab.backend.stop(engine.name)
    await lab.until_state(gate.name, ActiveState.INACTIVE)
