"""Which processes are ours: pid -> runtime, for telling our memory on a card from other people's."""

from collections.abc import Mapping

from core.runtime import RuntimeState
from daemon.node import Node

_HOLDING = frozenset(
    {RuntimeState.STARTING, RuntimeState.WARMING, RuntimeState.RUNNING, RuntimeState.DRAINING, RuntimeState.STOPPING}
)


async def read_owners(node: Node) -> Mapping[int, str]:
    """Every process of every runtime that may hold a card now. Raises: BackendLost."""
    owners: dict[int, str] = {}
    for runtime_id, controller in list(node.controllers.items()):
        if controller.state in _HOLDING:
            owners |= dict.fromkeys(await node.backend.read_pids(controller.unit_name), runtime_id)
    return owners
