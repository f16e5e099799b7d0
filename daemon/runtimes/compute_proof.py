"""After a load: does the engine compute on the cards that it was given? A silent fallback to the CPU is a failure."""

import asyncio

from core.errors import DependencyError
from daemon.runtimes.gpu_memory import Compute, Proof, judge_compute
from daemon.runtimes.release import CardReader
from units.backend import UnitBackend
from units.model import UnitRecord

_LOG_LINES = 400
_TRIES = 3
_PAUSE_S = 1.0
"""The driver lists a process a moment after it took memory."""


class ComputesElsewhere(DependencyError):
    """The runtime was given cards, and its engine computes without them."""

    code = "runtime_computes_elsewhere"


async def prove_compute(record: UnitRecord, unit_name: str, backend: UnitBackend, read: CardReader) -> Compute:
    """What was found. Raises: ComputesElsewhere, BackendLost."""
    found = Compute(Proof.UNKNOWN, "it has no cards")
    for _ in range(_TRIES if record.devices else 0):
        pids = await backend.read_pids(unit_name)
        log = await backend.read_log(unit_name, _LOG_LINES)
        found = judge_compute(record.devices, await read(), pids, log)
        if found.proof is not Proof.REFUTED:
            break
        await asyncio.sleep(_PAUSE_S)
    if found.proof is Proof.REFUTED:
        runtime_id = record.runtime_id
        raise ComputesElsewhere(
            f"runtime {runtime_id} was given {' '.join(record.devices)}, and does not compute there: {found.text}",
            hint=f"llmgw logs {runtime_id}; llmgw doctor; or runtimes.{runtime_id}.gpus: 0",
        )
    return found
