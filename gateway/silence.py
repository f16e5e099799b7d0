"""Finds targets that have streams to send and send nothing, so that others are asked while they are silent.

A request that waits for such a target is not ended: the engine may be reading a long prompt, and its watchdog is the
better judge. But it is no place for the next request, as long as another target answers. A request that is not streamed
says nothing about it: its first byte is its last.
"""

from collections.abc import Iterable

from gateway.loads import TargetLoad

SILENT_S = 8.0
"""With the time between two looks (`core.activity.REPORT_EVERY_S`) at most ten seconds."""


class Silence:
    """Remembers since when each target has sent nothing. `now_s` is monotonic."""

    def __init__(self) -> None:
        self._since: dict[TargetLoad, tuple[int, float]] = {}
        """Target -> its bytes, and since when there are so many; only of targets that owe a stream."""

    def find(self, loads: Iterable[TargetLoad], now_s: float) -> list[TargetLoad]:
        """The targets that have been silent for `SILENT_S`."""
        since: dict[TargetLoad, tuple[int, float]] = {}
        for load in loads:
            size_bytes = _owed(load)
            if size_bytes is not None:
                before = self._since.get(load)
                since[load] = before if before is not None and before[0] == size_bytes else (size_bytes, now_s)
        self._since = since
        return [load for load, (_, begun_s) in since.items() if now_s - begun_s >= SILENT_S]


def _owed(load: TargetLoad) -> int | None:
    """All bytes that the target ever sent, if there is a stream that it should go on with; else None."""
    size_bytes, owes = load.done_bytes, False
    for request in load.under_way:
        if request.progress is not None:
            size_bytes += request.progress.size_bytes
            owes = owes or (request.is_streamed and not request.progress.is_held_back)
    return size_bytes if owes else None
