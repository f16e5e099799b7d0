"""One blocking call at a time, in a thread that cannot hold the program: for reads that may never return.

`statvfs` on a dead network mount, or sysfs of a broken adapter, blocks its thread for good. A pool's threads are
joined when the loop ends, so they would hold the daemon's exit; these are not. A call that is still out is never
started a second time beside itself.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from core.errors import BugError, DependencyError, LlmgwError, TimedOutError

T = TypeVar("T")


class StillBlocked(TimedOutError):
    """The read did not return within its deadline, now or when it was begun earlier."""

    code = "read_blocked"


class Blocking(Generic[T]):
    """Calls `read` off the loop. One per kind of read."""

    def __init__(self, name: str, read: Callable[[], T], timeout_s: float = 10.0) -> None:
        self._name = name
        self._read = read
        self._timeout_s = timeout_s
        self._out: asyncio.Future[T] | None = None

    async def __call__(self) -> T:
        """Raises: StillBlocked, LlmgwError of the read, DependencyError for what the system refused it."""
        if self._out is None or self._out.done():
            self._out = self._begin()
        try:
            async with asyncio.timeout(self._timeout_s):
                return await asyncio.shield(self._out)
        except TimeoutError:
            raise StillBlocked(
                f"{self._name} cannot be read: the kernel does not return",
                hint="a dead network mount, or broken hardware",
            ) from None

    def _begin(self) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        result: asyncio.Future[T] = loop.create_future()
        # An outcome that comes after everybody left must not be reported as never retrieved.
        result.add_done_callback(lambda done: done.cancelled() or done.exception())

        def tell(answer: T | None, error: LlmgwError | None) -> None:
            if result.done():
                return
            if error is not None:
                result.set_exception(error)
            else:
                result.set_result(answer)  # type: ignore[arg-type]  # None is T's own None then

        def work() -> None:
            answer, error = None, None
            try:
                answer = self._read()
            except LlmgwError as known:
                error = known
            except OSError as refused:
                error = DependencyError(f"{self._name} cannot be read: {refused.strerror or refused}")
            except Exception as broken:  # noqa: BLE001 - the boundary of a thread: it has nobody else to tell
                error = BugError(f"reading {self._name}: {broken!r}")
            try:
                loop.call_soon_threadsafe(tell, answer, error)
            except RuntimeError:
                pass  # the loop is closed: the program ends

        threading.Thread(target=work, name=self._name, daemon=True).start()
        return result
