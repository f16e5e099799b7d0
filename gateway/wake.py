"""Asking the daemon to start a runtime that a request needs; many requests at once ask once.

The answer is the daemon's to give: it may refuse (an operator holds the runtime, no room), and its words are what
the client then hears.
"""

import asyncio

from core.client import DaemonClient
from core.errors import LlmgwError
from gateway.errors import ApiError

_ANSWER_S = 2.0
"""How long one request waits for the daemon's word; the asking itself goes on."""


class Waker:
    """Owner of the start requests in flight."""

    def __init__(self, daemon: DaemonClient) -> None:
        self._daemon = daemon
        self._asking: dict[str, asyncio.Task[LlmgwError | None]] = {}

    async def start(self, runtime_id: str, model: str) -> None:
        """Have the runtime started; returns when the daemon agreed or took too long to say.

        Raises: ApiError when the daemon refused or is away.
        """
        task = self._asking.get(runtime_id)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._ask(runtime_id), name=f"start {runtime_id}")
            self._asking[runtime_id] = task
            task.add_done_callback(lambda _: self._asking.pop(runtime_id, None))
        # `wait` leaves the task alone when the time is over or the client leaves: others wait for the same word.
        done, _ = await asyncio.wait((task,), timeout=_ANSWER_S)
        refusal = task.result() if done else None
        if refusal is not None:
            raise refused(refusal, model)

    async def _ask(self, runtime_id: str) -> LlmgwError | None:
        try:
            await self._daemon.start_runtime(runtime_id, wait=False, reason="request")
        except LlmgwError as error:
            return error
        return None

    async def close(self) -> None:
        """Cancel what is still being asked."""
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def refused(error: LlmgwError, model: str) -> ApiError:
    """How the daemon's refusal reads to a client. Pure.

    Always 503: the model exists and the request was right. Only what may pass by itself gets a `Retry-After`.
    """
    passes = error.http_status in (429, 503, 504)
    reason = "the node cannot be asked now" if error.code == "daemon_unavailable" else error.message.rstrip(".")
    return ApiError(
        503,
        "model_unavailable" if passes else "runtime_stopped",
        f"The model '{model}' cannot be started: {reason}.",
        model=model,
        state="stopped",
        reason=reason,
        retry_after_s=5 if passes else 0,
    )
