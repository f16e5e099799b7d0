"""Asking the daemon to start a runtime that a request needs; many requests at once ask once.

The answer is the daemon's to give: it may refuse (an operator holds the runtime, no room), and its words are what
the client then hears.
"""

import asyncio
from collections.abc import Awaitable

from core.client import DaemonClient
from core.errors import LlmgwError
from gateway.adapters import AdapterAsker
from gateway.errors import ApiError, system_stopped

_AGAIN_S = 5
_OWN_WORDS = frozenset(
    {
        "runtime_capacity_busy", "runtime_capacity_impossible", "runtime_keep_warm_conflict",
        "runtime_authority_conflict", "runtime_size_unknown",
    }
)  # fmt: skip
"""Codes of admission: clients hear them with the daemon's own message, which is that of `llmgw runtime-plan`."""


class Waker:
    """Owner of the start requests in flight."""

    def __init__(self, daemon: DaemonClient) -> None:
        self._daemon = daemon
        self.adapters = AdapterAsker(daemon)
        self._asking: dict[str, asyncio.Task[LlmgwError | None]] = {}

    async def start(self, runtime_id: str, model: str, settled: Awaitable[bool], wait_s: float) -> None:
        """Have the runtime started; returns when `settled` does, or after `wait_s`. The load goes on.

        Raises: ApiError when the daemon refused or is away.
        """
        task = self._asking.get(runtime_id)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._ask(runtime_id), name=f"start {runtime_id}")
            self._asking[runtime_id] = task
            task.add_done_callback(lambda _: self._asking.pop(runtime_id, None))
        settling = asyncio.ensure_future(settled)
        try:
            # `wait` leaves the task alone when the time is over or the client leaves: others wait for the same word.
            await asyncio.wait((task, settling), timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
            refusal = task.result() if task.done() else None
            if refusal is not None:
                raise refused(refusal, model)
            # It runs, says the daemon; the routes will say so in a moment.
            await settling
        finally:
            settling.cancel()

    async def _ask(self, runtime_id: str) -> LlmgwError | None:
        """Until it runs, or the daemon says why it will not: that may be known only after a long wait for room."""
        try:
            await self._daemon.start_runtime(runtime_id, wait=True, reason="request")
        except LlmgwError as error:
            return error
        return None

    async def close(self) -> None:
        """Cancel what is still being asked."""
        await self.adapters.close()
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def refused(error: LlmgwError, model: str) -> ApiError:
    """How the daemon's refusal reads to a client. Pure.

    503, because the model exists and the request was right; 429 where only other requests are in the way. Only what
    may pass by itself gets a `Retry-After`.
    """
    if error.code == "system_stopped":
        return system_stopped()
    if error.code in _OWN_WORDS:
        is_busy = error.http_status == 429
        return ApiError(
            429 if is_busy else 503, error.code, error.message, model=model, state="stopped",
            reason=error.message, retry_after_s=_AGAIN_S if is_busy else 0,
        )  # fmt: skip
    passes = error.http_status in (429, 503, 504)
    reason = "the node cannot be asked now" if error.code == "daemon_unavailable" else error.message.rstrip(".")
    code = "model_unavailable" if passes else "runtime_failed" if error.http_status == 502 else "runtime_stopped"
    return ApiError(
        503,
        code,
        f"The model '{model}' cannot be started: {reason}.",
        model=model,
        state="stopped",
        reason=reason,
        retry_after_s=_AGAIN_S if passes else 0,
    )
