"""What a unit wrote, from the journal, by journalctl.

Matched by `_SYSTEMD_UNIT=`, not by `-u`: that would mix systemd's own messages about the unit into the engine's words.
A line becomes an entry when its newline comes or its writer ends, so a last line without a newline is there too.
"""

import asyncio
import codecs
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence

from core.errors import DependencyError
from core.process import base_environment, run_process

READ_TIMEOUT_S = 20.0
READ_LIMIT_BYTES = 64 * 1024 * 1024
MAX_LINE_CHARS = 1024 * 1024
_CHUNK_BYTES = 64 * 1024
_END_GRACE_S = 2.0


class JournalUnreadable(DependencyError):
    """journalctl could not be started, or ended while it was to follow."""

    code = "journal_unreadable"


async def read_journal(name: str, lines: int) -> list[str]:
    """The last `lines` lines of the unit, of all its lives, oldest first. Raises: ProcessFailed, ProcessTimedOut."""
    if lines <= 0:
        return []
    done = await run_process(_command(name, f"--lines={lines}"), timeout_s=READ_TIMEOUT_S, limit_bytes=READ_LIMIT_BYTES)
    # An entry may hold several lines, so the last entries may be more lines than were asked for.
    return done.text.removesuffix("\n").split("\n")[-lines:] if done.stdout else []


async def follow_journal(name: str, lines: int) -> AsyncIterator[str]:
    """The last `lines` lines and then each new one, until the consumer stops. Raises: JournalUnreadable."""
    # journalctl 252 that is to begin with the last N entries never shows any when there are none yet. Then everything
    # is new, and it may begin at the head. To be removed when Debian 12 is no longer supported.
    begin = f"--lines={max(lines, 0)}" if await read_journal(name, 1) else "--no-tail"
    async with contextlib.aclosing(follow_command(_command(name, begin), what=name)) as found:
        async for line in found:
            yield line


async def follow_command(command: Sequence[str], *, what: str) -> AsyncGenerator[str, None]:
    """The lines of a journalctl that does not end by itself; `aclose` ends it. Raises: JournalUnreadable."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            "--follow",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=base_environment(),
            start_new_session=True,
        )
    except OSError as error:
        raise JournalUnreadable(f"journalctl cannot be started: {error.strerror}") from error
    try:
        if process.stdout is not None:
            async for line in split_lines(process.stdout):
                yield line
    finally:
        await _end(process)
    raise JournalUnreadable(f"journalctl stopped following {what}", hint="systemctl status systemd-journald")


async def split_lines(stream: asyncio.StreamReader) -> AsyncIterator[str]:
    """Lines as they come; one longer than `MAX_LINE_CHARS` comes in pieces."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    rest = ""
    while chunk := await stream.read(_CHUNK_BYTES):
        *whole, rest = (rest + decoder.decode(chunk)).split("\n")
        for line in whole:
            yield line
        if len(rest) > MAX_LINE_CHARS:
            yield rest
            rest = ""
    if rest:
        yield rest


def _command(name: str, *options: str) -> list[str]:
    words = ("--quiet", "--no-pager", "--output=cat", "--output-fields=MESSAGE", "--all")
    return ["journalctl", *words, *options, f"_SYSTEMD_UNIT={name}"]


async def _end(process: asyncio.subprocess.Process) -> None:
    """It only reads, so it may be killed at once; it is reaped in any case."""
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_END_GRACE_S):
            await process.wait()
