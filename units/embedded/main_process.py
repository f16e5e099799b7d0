"""One main process, ours or adopted: watched until its end, then asked how it ended."""

import asyncio
import os
import signal
from collections.abc import Callable

from units.embedded.pidfd import open_process, read_child_exit, read_stranger_exit
from units.embedded.restart import UNKNOWN_EXIT, Exit

_STATUS_TRIES = 40
_STATUS_PAUSE_S = 0.05
"""An adopted process tells its exit status once its parent (init) has reaped it: wait for that, but not for ever."""


class MainProcess:
    """A process held by its pidfd. `is_over` once it has ended; then `read_exit`, then `release`."""

    def __init__(self, pid: int, pidfd: int | None, *, is_child: bool) -> None:
        self.pid = pid
        self.is_child = is_child
        self.is_over = pidfd is None
        self._pidfd = pidfd
        self._exit: Exit | None = UNKNOWN_EXIT if pidfd is None else None

    @classmethod
    def adopt(cls, pid: int, start_ticks: int) -> "MainProcess":
        """A process that an earlier supervisor started; over already when it cannot be found."""
        return cls(pid, open_process(pid, start_ticks), is_child=False)

    def watch(self, on_end: Callable[[], None]) -> None:
        """Call `on_end` when it has ended."""
        if self._pidfd is not None:
            asyncio.get_running_loop().add_reader(self._pidfd, self._ended, on_end)

    def _ended(self, on_end: Callable[[], None]) -> None:
        """The pidfd became readable. A child is reaped at once: it stands in the way of orphans behind it."""
        if self._pidfd is not None:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            self._exit = read_child_exit(self.pid) if self.is_child else read_stranger_exit(self.pid, self._pidfd)
        self.is_over = True
        on_end()

    async def read_exit(self) -> Exit:
        """How it ended. Bounded: `UNKNOWN_EXIT` where nobody tells."""
        for _ in range(_STATUS_TRIES):
            if self._exit is None and self._pidfd is not None:
                self._exit = read_stranger_exit(self.pid, self._pidfd)
            if self._exit is not None:
                return self._exit
            await asyncio.sleep(_STATUS_PAUSE_S)
        return UNKNOWN_EXIT

    def send_signal(self, number: int) -> None:
        """Signal exactly this process; one that has ended is fine."""
        if self._pidfd is None or self.is_over:
            return
        try:
            signal.pidfd_send_signal(self._pidfd, number)
        except (ProcessLookupError, PermissionError):
            pass

    def release(self) -> None:
        """Stop watching. The process is left alone."""
        if self._pidfd is not None:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None
