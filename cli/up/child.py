"""One program run in the foreground's service: started, watched, started again with backoff, and stopped.

It runs in a session of its own, so that Ctrl-C reaches `llmgw up` alone, which then stops things in order.
"""

import asyncio
import contextlib
import os
import signal
import time
from pathlib import Path

from cli.output import note
from cli.up.programs import Program
from core.errors import DependencyError
from core.files import storage_error
from core.process import last_lines
from core.tasks import Backoff

_SETTLED_S = 10.0
"""A life this long counts as a success: the next failure starts with a short pause again."""

_HOPELESS = 3
"""Ends in a row, each before it settled, after which the first bring-up gives up."""

_LOG_BYTES = 64 << 20
_KEPT_BYTES = 4 << 20


class ChildFailed(DependencyError):
    """A program of ours does not stay up."""

    code = "program_failed"


class Child:
    """Owns one process at a time. `run` starts it again whenever it ends; `stop` ends it for good."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.patient = False
        """Set once everything has served: from then on it is restarted for ever, never given up."""
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()
        self._spawning = asyncio.Lock()
        self._backoff = Backoff(0.2, 10.0)
        self._log_start = 0

    @property
    def name(self) -> str:
        return self.program.name

    async def run(self) -> None:
        """Keep it running until `stop`. Raises: ChildFailed, StorageError."""
        quick_ends = 0
        while not self._stopping.is_set():
            began = time.monotonic()
            async with self._spawning:
                if self._stopping.is_set():
                    return
                process = self._process = await self._spawn()
            code = await process.wait()
            if self._stopping.is_set():
                return
            _kill_session(process)
            settled = time.monotonic() - began >= _SETTLED_S
            quick_ends = 0 if settled else quick_ends + 1
            if settled:
                self._backoff.reset()
            if quick_ends >= _HOPELESS and not self.patient:
                raise ChildFailed(f"{self.name} {_ended(code)}{self._last_words()}", hint=f"see {self.program.log}")
            note(f"{self.name} {_ended(code)}; starting it again{self._last_words()}")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._backoff.next_s()):
                    await self._stopping.wait()

    async def stop(self, grace_s: float, *, hurry: asyncio.Event | None = None, send: bool = True) -> None:
        """SIGTERM, and SIGKILL for its whole session after the grace or when `hurry` is set; always reaped.

        `send=False` when it was asked to end in another way already.
        """
        self._stopping.set()
        async with self._spawning:  # a process that is just being made would be missed, and left
            process = self._process
        if process is None:
            return
        if send:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        await _wait_within(process, grace_s, hurry)
        _kill_session(process)
        await process.wait()

    async def _spawn(self) -> asyncio.subprocess.Process:
        program = self.program
        try:
            log = os.open(program.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise storage_error(program.log, error) from error
        try:
            self._log_start = os.fstat(log).st_size
            return await asyncio.create_subprocess_exec(
                *program.argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=program.directory,
                env=dict(program.environment),
                pass_fds=program.pass_fds,
                start_new_session=True,
            )
        except OSError as error:
            raise ChildFailed(f"{self.name} cannot be started: {error.strerror}") from error
        finally:
            os.close(log)

    def _last_words(self) -> str:
        """The end of what this life wrote, after a colon; empty when it wrote nothing."""
        try:
            with open(self.program.log, "rb") as file:
                file.seek(max(self._log_start, os.fstat(file.fileno()).st_size - 8192))
                words = last_lines(file.read(), 3)
        except OSError:
            return ""
        return f": {words}" if words else ""


def _kill_session(process: asyncio.subprocess.Process) -> None:
    """End what the program has started and not ended itself (a gateway's workers): it is in its session.

    Engines are not: their supervisor gives each a session of its own.
    """
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _ended(code: int) -> str:
    if code >= 0:
        return f"ended with status {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


async def _wait_within(process: asyncio.subprocess.Process, grace_s: float, hurry: asyncio.Event | None) -> None:
    """Return when the process ended, or the grace is over, or somebody is in a hurry."""
    waits = [asyncio.ensure_future(process.wait())]
    if hurry is not None:
        waits.append(asyncio.ensure_future(_true(hurry)))
    try:
        await asyncio.wait(waits, timeout=grace_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


async def _true(event: asyncio.Event) -> int:
    await event.wait()
    return 0


def trim_log(log: Path) -> None:
    """Keep a log from filling the disk: past a bound its end is kept beside it and the file starts anew.

    The program goes on writing to the same open file, which is in append mode.
    """
    try:
        with open(log, "r+b") as file:
            size = os.fstat(file.fileno()).st_size
            if size <= _LOG_BYTES:
                return
            file.seek(size - _KEPT_BYTES)
            log.with_name(f"{log.name}.1").write_bytes(file.read())
            file.truncate(0)
    except OSError:
        return  # a log that cannot be trimmed now can be trimmed later
