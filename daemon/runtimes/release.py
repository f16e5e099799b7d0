"""Waiting until nothing is left of an earlier life: no process in the unit, no memory on its cards.

A killed server's workers may hold a card for seconds, while its port is free at once; an engine started too early
fails there for want of memory. Bounded, and the error names who holds on.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path

from core.errors import UnavailableError
from core.hardware import Card
from daemon.runtimes.gpu_memory import describe_holders, holders
from units.backend import UnitBackend

RELEASE_S = 30.0
_PROCESS_POLL_S = 0.1
_CARD_POLL_S = 1.0

CardReader = Callable[[], Awaitable[Sequence[Card]]]
"""Asks the driver now."""


class NotReleased(UnavailableError):
    """Something of an earlier life of the runtime holds on."""

    code = "runtime_not_released"


async def wait_unit_empty(unit_name: str, runtime_id: str, backend: UnitBackend, within_s: float = RELEASE_S) -> None:
    """Until the unit has no process. Raises: NotReleased, which names them; BackendLost."""
    pids: list[int] = []
    try:
        async with asyncio.timeout(within_s):
            while True:
                pids = await backend.read_pids(unit_name)
                if not pids:
                    return
                await asyncio.sleep(_PROCESS_POLL_S)
    except TimeoutError:
        names = ", ".join(f"pid {pid} ({_name_of(pid)})" for pid in sorted(pids))
        raise NotReleased(
            f"an earlier life of {runtime_id} has not ended after {within_s:g} s: {names}",
            hint="a process that cannot be killed waits for the kernel or for its card; a reboot ends it",
        ) from None


async def wait_cards_free(
    runtime_id: str, devices: Collection[str], pids: Collection[int], read: CardReader, within_s: float = RELEASE_S
) -> None:
    """Until none of these processes holds memory of those cards. Raises: NotReleased, which names them."""
    if not devices or not pids:
        return
    left = []
    try:
        async with asyncio.timeout(within_s):
            while True:
                left = holders(devices, await read(), pids)
                if not left:
                    return
                await asyncio.sleep(_CARD_POLL_S)
    except TimeoutError:
        who = describe_holders(left) or "nvidia-smi does not answer"
        raise NotReleased(
            f"the cards of {runtime_id} were not released within {within_s:g} s: {who}", hint="llmgw hardware"
        ) from None


def _name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text("utf-8", "replace").strip()
    except OSError:
        return "gone by now"
