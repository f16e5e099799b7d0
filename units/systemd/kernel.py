"""The kernel's messages of this boot, from the journal: for a daemon that is not let at /dev/kmsg."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from core.process import base_environment
from units.systemd.journal import JournalUnreadable, split_lines

_END_GRACE_S = 2.0


async def follow_kernel(pattern: str) -> AsyncIterator[str]:
    """Messages that match `pattern`, from the boot's first one on; then each new one, until the consumer stops.

    A line reads `[12345.678901] host kernel: text`, with seconds after boot. Raises: JournalUnreadable.
    """
    # --no-tail, since journalctl 252 that is to begin with the last N entries shows none when there are none yet.
    options = ("--quiet", "--no-pager", "--dmesg", "--output=short-monotonic", "--no-tail", f"--grep={pattern}")
    try:
        process = await asyncio.create_subprocess_exec(
            *("journalctl", *options, "--follow"),
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
        # It only reads, so it may be killed at once.
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END_GRACE_S):
                await process.wait()
    raise JournalUnreadable("journalctl stopped following the kernel", hint="systemctl status systemd-journald")
