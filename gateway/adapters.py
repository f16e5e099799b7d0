"""Asking the daemon for a LoRA adapter that a request needs and its engine does not hold; many requests ask once.

The daemon decides what makes room and when (`daemon.adapters`); the route table says when the adapter is there. As
long as anybody waits here the daemon is asked, and no longer: what nobody waits for is not loaded.
"""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass

from core.client import DaemonClient, DaemonUnavailable
from core.errors import LlmgwError
from core.tasks import Backoff
from gateway.errors import ApiError

_AGAIN_S = 2
_TRIES = 20
"""So often a daemon that is away is asked again: for about ten seconds. It may just be restarting."""


@dataclass(slots=True)
class _Ask:
    task: asyncio.Task[LlmgwError | None]
    waiters: int = 0


class AdapterAsker:
    """Owner of the asks in flight."""

    def __init__(self, daemon: DaemonClient) -> None:
        self._daemon = daemon
        self._asks: dict[tuple[str, str], _Ask] = {}

    async def load(self, runtime_id: str, adapter: str, model: str, settled: Awaitable[bool]) -> bool:
        """Have it loaded; what `settled` says, which waits for the route table to have it, or for the time to be over.

        Raises: ApiError when the engine does not take it.
        """
        key = (runtime_id, adapter)
        ask = self._asks.get(key)
        if ask is None:
            task = asyncio.get_running_loop().create_task(self._ask(*key), name=f"adapter {adapter} on {runtime_id}")
            ask = self._asks[key] = _Ask(task)
        ask.waiters += 1
        settling = asyncio.ensure_future(settled)
        try:
            await asyncio.wait((ask.task, settling), return_when=asyncio.FIRST_COMPLETED)
            refusal = ask.task.result() if ask.task.done() else None
            if refusal is not None and not settling.done():
                raise refused(refusal, model)
            return await settling
        finally:
            settling.cancel()
            ask.waiters -= 1
            if self._asks.get(key) is ask and (ask.task.done() or not ask.waiters):
                del self._asks[key]
                ask.task.cancel()

    async def close(self) -> None:
        """Cancel what is still being asked."""
        tasks = [ask.task for ask in self._asks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, runtime_id: str, adapter: str) -> LlmgwError | None:
        """Until it is loaded, or the daemon says why it will not be."""
        backoff = Backoff(0.05, 1.0)
        for left in reversed(range(_TRIES)):
            try:
                await self._daemon.load_adapter(runtime_id, adapter)
            except DaemonUnavailable as error:
                if not left:
                    return error
            except LlmgwError as error:
                return error
            else:
                return None
            await asyncio.sleep(backoff.next_s())
        return None


def refused(error: LlmgwError, model: str) -> ApiError:
    """How the daemon's refusal reads to a client. Pure. The engine's own words name files, and are the operator's."""
    if error.http_status in (429, 503, 504):
        message = f"The adapter of the model '{model}' cannot be loaded now."
        return ApiError(503, "model_unavailable", message, model=model, retry_after_s=_AGAIN_S)
    if error.code == "weights_missing":
        message = f"The adapter of the model '{model}' is not on this machine."
        return ApiError(503, "adapter_missing", message, model=model)
    message = f"The engine does not take the adapter of the model '{model}'; its operator can see why."
    return ApiError(503, "adapter_failed", message, model=model)
