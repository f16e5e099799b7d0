"""Long-lived tasks: backoff with jitter, a loop that goes on after a failure, and parts that end with the first."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine

from core.errors import LlmgwError
from core.log import EventLogger


class Backoff:
    """Delays that double up to a cap, each between half and the whole of its step, so that nobody retries in step."""

    def __init__(self, base_s: float, cap_s: float) -> None:
        self.base_s = base_s
        self.cap_s = cap_s
        self._step = 0

    def next_s(self) -> float:
        """Seconds to wait before the next try."""
        full = min(self.cap_s, self.base_s * 2.0 ** min(self._step, 32))
        self._step += 1
        return full * random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """The last try worked."""
        self._step = 0


async def supervise(
    name: str, run: Callable[[], Awaitable[None]], log: EventLogger, backoff: Backoff | None = None
) -> None:
    """Run `run` for ever: when it fails, say so once and start it again after a backoff. Ends only by cancellation."""
    pause = backoff or Backoff(0.5, 30.0)
    while True:
        try:
            await run()
            pause.reset()
        except LlmgwError as error:
            log.warning("loop_failed", loop=name, code=error.code, error=error.message)
        except Exception as error:  # noqa: BLE001 - the supervised-loop helper: one broken pass must not end a program
            log.error("loop_broke", loop=name, error=repr(error))
        await asyncio.sleep(pause.next_s())


async def run_until_first(*parts: Coroutine[None, None, None]) -> None:
    """Run all until one ends, then cancel the others; what the one raised is raised. Nothing runs on afterwards."""
    loop = asyncio.get_running_loop()
    tasks = {loop.create_task(part) for part in parts}
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
