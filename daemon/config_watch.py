"""Reads the config again when its file changes: by an editor, a deployment tool, or the environment file beside it."""

import asyncio
from collections.abc import Callable, Collection
from pathlib import Path

from core.inotify import watch_directory

_SETTLE_S = 0.3
"""An editor writes, renames and touches; the file is read once they have been still for so long."""


async def watch_config(directory: Path, names: Collection[str], changed: Callable[[], None]) -> None:
    """Call `changed` after each burst of changes to one of `names`. Ends only by cancellation."""
    pending: asyncio.TimerHandle | None = None
    loop = asyncio.get_running_loop()
    try:
        async for touched in watch_directory(directory):
            if touched.isdisjoint(names):
                continue
            if pending is not None:
                pending.cancel()
            pending = loop.call_later(_SETTLE_S, changed)
    finally:
        if pending is not None:
            pending.cancel()
