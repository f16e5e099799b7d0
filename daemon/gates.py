"""How the gate of a runtime stands, as its unit says now: for whoever looks, not for deciding anything."""

from core.api import GateStatus
from core.errors import LlmgwError
from core.runtime import RuntimeState
from daemon.runtimes.controller import RuntimeController
from units.backend import ActiveState, UnitBackend

_UP = (RuntimeState.STARTING, RuntimeState.WARMING, RuntimeState.RUNNING)


async def read_gate(controller: RuntimeController, backend: UnitBackend) -> GateStatus | None:
    """None for a runtime that is not up, and for one whose engine has no gate."""
    record, probe = controller.record, controller.probe
    if controller.state not in _UP or record is None or probe is None or probe.adapter.gate is None:
        return None
    try:
        state = (await backend.read_status(controller.gate_name)).active_state.value
    except LlmgwError as error:
        state = f"unknown: {error.message}"
    port, *more = record.ports or (0,)
    return GateStatus(unit=controller.gate_name, state=state, port=port, engine_port=more[0] if more else 0)


async def find_gates_down(
    controllers: dict[str, RuntimeController], backend: UnitBackend
) -> tuple[tuple[str, GateStatus], ...]:
    """(runtime, its gate) of those whose engine runs and whose gate does not."""
    found = []
    for runtime_id, controller in sorted(controllers.items()):
        status = controller.status
        is_up = status is not None and status.active_state is ActiveState.ACTIVE
        gate = await read_gate(controller, backend) if is_up else None
        if gate is not None and gate.state != ActiveState.ACTIVE.value:
            found.append((runtime_id, gate))
    return tuple(found)
