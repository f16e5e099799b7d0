"""Starts `make_once` in a process of its own, to be killed at will."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

_ROOT = Path(__file__).parents[3]


@asynccontextmanager
async def making(what: str, into: Path, mirror: Path, of: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """The process; whatever is left of it at the end is killed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.integration.engines.make_once", what, str(into), str(mirror), of),
        stdout=asyncio.subprocess.PIPE,
        cwd=_ROOT,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        # One that was killed may be reaped already, before the event loop hears of it.
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        await process.communicate()
