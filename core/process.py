"""The one door for subprocesses: an argv list, a chosen environment, a byte limit, a deadline, and always a reap.

A child that outlives its deadline gets SIGTERM, then SIGKILL after a grace, and is waited for; one in
uninterruptible sleep (a hung `nvidia-smi`) is given up after a further bound so that the caller goes on. Errors
carry the argv, the code and the last lines that the child wrote.
"""

import asyncio
import contextlib
import os
import shlex
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.errors import DependencyError, TimedOutError

_ALLOWED = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "TERM", "http_proxy", "https_proxy", "no_proxy")
_TERM_GRACE_S = 2.0
_KILL_GRACE_S = 2.0


@dataclass(frozen=True, slots=True)
class Completed:
    """A child that ended by itself."""

    argv: tuple[str, ...]
    code: int
    """Exit status; negative: the signal that ended it."""
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        return self.stdout.decode("utf-8", "replace")


class ProcessFailed(DependencyError):
    """A command could not be started, ended badly, or wrote more than it may."""

    code = "command_failed"

    def __init__(
        self, argv: Sequence[str], reason: str, *, exit_status: int | None = None, output: bytes = b""
    ) -> None:
        last = last_lines(output, 3)
        super().__init__(f"{shlex.join(argv)[:300]} {reason}{': ' + last if last else ''}")
        self.argv = tuple(argv)
        self.exit_status = exit_status
        self.output = output


class ProcessTimedOut(TimedOutError):
    """A command did not end within its deadline and was killed."""

    code = "command_timed_out"

    def __init__(self, message: str, *, stuck_pid: int = 0) -> None:
        super().__init__(message)
        self.stuck_pid = stuck_pid
        """The child, when not even SIGKILL ended it (uninterruptible sleep in a driver); 0: it is gone."""


def last_lines(output: bytes, count: int) -> str:
    """The last `count` non-empty lines, joined by ` / `, bounded, and without control characters."""
    lines = [line.strip() for line in output[-8192:].decode("utf-8", "replace").splitlines() if line.strip()]
    text = " / ".join(lines[-count:])
    return "".join(c for c in text if c.isprintable())[-600:]


def base_environment() -> dict[str, str]:
    """The part of our own environment that a child may see."""
    return {name: os.environ[name] for name in _ALLOWED if name in os.environ}


async def run_process(
    argv: Sequence[str],
    *,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: bytes = b"",
    limit_bytes: int = 1 << 20,
    check: bool = True,
) -> Completed:
    """Run a command to its end.

    `env` replaces the whole environment; None takes `base_environment()`. `limit_bytes` bounds stdout and stderr
    each. Raises: ProcessFailed (not started, or `check` and a status other than 0, or too much output),
    ProcessTimedOut.
    """
    loop = asyncio.get_running_loop()
    try:
        transport, child = await loop.subprocess_exec(
            lambda: _Collector(loop, limit_bytes),
            *argv,
            stdin=asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL,
            env=dict(env) if env is not None else base_environment(),
            cwd=cwd,
            start_new_session=True,
        )
    except OSError as error:
        raise ProcessFailed(argv, f"cannot be started: {error.strerror}") from error
    timed_out = False
    try:
        async with asyncio.timeout(timeout_s):
            if stdin:
                _feed(transport, stdin)
            await child.done
    except TimeoutError:
        timed_out = True
    finally:
        pid = transport.get_pid()
        await _end(transport, child)
    if timed_out:
        raise ProcessTimedOut(
            f"{shlex.join(argv)[:300]} did not end within {timeout_s:g} s",
            stuck_pid=0 if child.exited.done() else pid or 0,
        )
    if child.overflowed:
        raise ProcessFailed(argv, f"wrote more than {limit_bytes} bytes")
    code = transport.get_returncode() or 0
    stdout, stderr = bytes(child.output[1]), bytes(child.output[2])
    if check and code != 0:
        reason = f"exited with {code}" if code > 0 else f"was ended by {signal.Signals(-code).name}"
        raise ProcessFailed(argv, reason, exit_status=code, output=stderr or stdout)
    return Completed(tuple(argv), code, stdout, stderr)


class _Collector(asyncio.SubprocessProtocol):
    """Keeps what the child writes, up to the limit, and knows when it ended with all its output read."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limit_bytes: int) -> None:
        self.output = {1: bytearray(), 2: bytearray()}
        self.overflowed = False
        self.exited: asyncio.Future[None] = loop.create_future()
        self.done: asyncio.Future[None] = loop.create_future()
        """The process ended and both pipes are at their end, or too much came."""
        self._limit = limit_bytes

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        kept = self.output[fd]
        kept += data
        if len(kept) > self._limit and not self.done.done():
            self.overflowed = True
            self.done.set_result(None)

    def process_exited(self) -> None:
        if not self.exited.done():
            self.exited.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)


def _feed(transport: asyncio.SubprocessTransport, data: bytes) -> None:
    pipe = transport.get_pipe_transport(0)
    if isinstance(pipe, asyncio.WriteTransport):
        pipe.write(data)
        pipe.close()


async def _end(transport: asyncio.SubprocessTransport, child: _Collector) -> None:
    """Make sure that the child and its session are gone and reaped, and that no pipe stays open."""
    for sent, grace_s in ((signal.SIGTERM, _TERM_GRACE_S), (signal.SIGKILL, _KILL_GRACE_S)):
        if transport.get_returncode() is not None:
            break
        with contextlib.suppress(ProcessLookupError):
            os.killpg(transport.get_pid(), sent)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await asyncio.shield(child.exited)
    transport.close()
