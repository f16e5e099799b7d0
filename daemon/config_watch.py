"""Reads the config again when its file changes: by an editor, a deployment tool, or the environment file beside it.

Half of a config is often a config, too, one that wants less. So nothing is read while one of the files is being
written in place: it is finished when its writer has closed it.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from core.inotify import Change, Event, watch_directory

_SETTLE_S = 0.3
"""An editor writes, renames and touches; the file is read once they have been still for so long."""


class Writers:
    """Which of the files somebody is writing. Pure."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = frozenset(names)
        self._unfinished: set[str] = set()

    @property
    def are_done(self) -> bool:
        return not self._unfinished

    def hear(self, events: Iterable[Event], is_link: Callable[[str], bool]) -> bool:
        """Whether one of the files may be another by these; `is_link` tells it of one that was created."""
        is_other = False
        for event in events:
            if event.change is Change.LOST:
                self._unfinished.clear()
                is_other = True
            elif event.name not in self._names:
                continue
            elif event.change is Change.WRITTEN or (event.change is Change.CREATED and not is_link(event.name)):
                self._unfinished.add(event.name)
                is_other = True
            else:
                self._unfinished.discard(event.name)
                is_other = True
        return is_other


async def watch_config(directory: Path, names: Collection[str], changed: Callable[[], None]) -> None:
    """Call `changed` after each burst of changes to one of `names`. Ends only by cancellation."""
    pending: asyncio.TimerHandle | None = None
    loop = asyncio.get_running_loop()
    writers = Writers(names)

    def is_link(name: str) -> bool:
        return _is_link(directory / name)

    try:
        async for events in watch_directory(directory):
            if not writers.hear(events, is_link):
                continue
            if pending is not None:
                pending.cancel()
            pending = loop.call_later(_SETTLE_S, changed) if writers.are_done else None
    finally:
        if pending is not None:
            pending.cancel()


def _is_link(path: Path) -> bool:
    """Whether it is another name of a file that was there: nobody writes that for being new."""
    try:
        return path.is_symlink() or path.stat().st_nlink > 1
    except OSError:
        return False  # it is gone again, and that is told, too
