"""The kernel's messages of this boot, from the journal: for a daemon that is not let at /dev/kmsg."""

import contextlib
from collections.abc import AsyncIterator

from units.systemd.journal import follow_command


async def follow_kernel(pattern: str) -> AsyncIterator[str]:
    """Messages that match `pattern`, from the boot's first one on; then each new one, until the consumer stops.

    A line reads `[12345.678901] host kernel: text`, with seconds after boot. Raises: JournalUnreadable.
    """
    # --no-tail, since journalctl 252 that is to begin with the last N entries shows none when there are none yet.
    options = ("--quiet", "--no-pager", "--dmesg", "--output=short-monotonic", "--no-tail", f"--grep={pattern}")
    async with contextlib.aclosing(follow_command(("journalctl", *options), what="the kernel")) as lines:
        async for line in lines:
            yield line
