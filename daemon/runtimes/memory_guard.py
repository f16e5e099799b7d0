"""Ends a load that would take the whole machine down: while engines load, available memory is watched.

Admission decides by estimates; a load that needs more than was thought meets this guard before it meets the kernel's
OOM killer, which might choose anything. Of several loads the youngest is ended first, and the others are judged anew
once its memory is back. The decision is pure (`floor_mib`); `MemoryGuard` is the loop, one per node.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from core.config.schema import MemorySafety
from core.errors import UnavailableError

_FLOOR_MIB = 1024
_FLOOR_SHARE = 20
"""A small machine keeps this part of its memory instead."""

_RELEASE_S = 1.0
"""How long the memory of an ended load takes to come back, before the next load is judged."""

MemoryReader = Callable[[], tuple[int | None, int | None]]
"""Total and available MiB of the host."""


class MemorySafetyAbort(UnavailableError):
    """The load was ended to keep the machine alive. Not retried until an operator starts it."""

    code = "runtime_memory_safety_abort"


def floor_mib(settings: MemorySafety, total_mib: int) -> int:
    """How much must stay available."""
    if settings.min_available_memory_gb is not None:
        return int(settings.min_available_memory_gb * 1024)
    return min(_FLOOR_MIB, total_mib // _FLOOR_SHARE)


@dataclass(slots=True)
class _Load:
    runtime_id: str
    scope: asyncio.Timeout
    """Ends the load when it is rescheduled to now."""
    abort: MemorySafetyAbort | None = None


class MemoryGuard:
    """See the module."""

    def __init__(self, read: MemoryReader, settings: Callable[[], MemorySafety]) -> None:
        self._read = read
        self._settings = settings
        self._loads: list[_Load] = []
        self._loading = asyncio.Event()

    async def run(self) -> None:
        """Watch whenever something loads, until cancelled."""
        while True:
            await self._loading.wait()
            settings = self._settings()
            aborted = settings.mode == "enforce" and self._judge(settings)
            await asyncio.sleep(_RELEASE_S if aborted else settings.poll_interval_ms / 1000)

    @asynccontextmanager
    async def watching(self, runtime_id: str) -> AsyncIterator[None]:
        """The block is one load. Raises: MemorySafetyAbort out of it, when memory ends before it does."""
        load: _Load | None = None
        try:
            async with asyncio.timeout(None) as scope:
                load = _Load(runtime_id, scope)
                self._loads.append(load)
                self._loading.set()
                yield
        except TimeoutError:
            if load is None or load.abort is None:
                raise
            raise load.abort from None
        finally:
            if load is not None:
                self._loads.remove(load)
            if not self._loads:
                self._loading.clear()

    def _judge(self, settings: MemorySafety) -> bool:
        """Look once; whether a load was ended. Memory that cannot be read ends nothing."""
        total_mib, available_mib = self._read()
        if total_mib is None or available_mib is None:
            return False
        limit_mib = floor_mib(settings, total_mib)
        load = next((each for each in reversed(self._loads) if each.abort is None), None)
        if load is None or available_mib > limit_mib:
            return False
        load.abort = MemorySafetyAbort(
            f"loading {load.runtime_id} was ended: {available_mib} MiB of memory were left, and {limit_mib} must stay",
            hint=f"free memory, then llmgw runtime-start {load.runtime_id}; see runtimePolicy.memorySafety",
        )
        load.scope.reschedule(asyncio.get_running_loop().time())
        return True
