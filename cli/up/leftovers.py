"""Ends the programs that an `llmgw up` left behind when it was killed, before a new one takes over.

They are found by the mark in their environment (`programs.MARK`). Engines are left alone: their supervisor ends
without stopping them, and the new one adopts them with their models still loaded.
"""

import asyncio
import contextlib
import os
import select
import signal
import time
from pathlib import Path

from cli.up.programs import MARK
from core.errors import DependencyError

_TERM_S = 5.0
_KILL_S = 5.0


class LeftoverStays(DependencyError):
    """A process that ignores SIGKILL: it hangs in the kernel, or belongs to somebody else."""

    code = "leftover_process"


async def end_leftovers(root: Path) -> list[int]:
    """End every process with our mark for this state directory. Returns their pids. Raises: LeftoverStays."""
    return await asyncio.to_thread(_end_all, root)


def find_marked(root: Path, proc: Path = Path("/proc")) -> list[int]:
    """Pids of processes that carry the mark for `root`, except ourselves."""
    wanted = os.fsencode(f"{MARK}={root}")
    return [
        int(entry.name)
        for entry in proc.iterdir()
        if entry.name.isdigit() and int(entry.name) != os.getpid() and wanted in _environment(entry)
    ]


def _environment(entry: Path) -> list[bytes]:
    try:
        return (entry / "environ").read_bytes().split(b"\0")
    except OSError:
        return []  # gone, or another user's


def _end_all(root: Path) -> list[int]:
    ended: list[int] = []
    for sent, wait_s in ((signal.SIGTERM, _TERM_S), (signal.SIGKILL, _KILL_S)):
        pids = find_marked(root)
        ended += [pid for pid in pids if pid not in ended]
        _signal_and_wait(pids, root, sent, wait_s)
    left = find_marked(root)
    if left:
        raise LeftoverStays(f"processes of an earlier llmgw up do not end: {', '.join(map(str, left))}")
    return ended


def _signal_and_wait(pids: list[int], root: Path, sent: signal.Signals, wait_s: float) -> None:
    """Signal through pidfds, so that a pid that was given away meanwhile is never hit."""
    poller = select.poll()
    open_fds: set[int] = set()
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            descriptor = os.pidfd_open(pid)
            open_fds.add(descriptor)
            poller.register(descriptor, select.POLLIN)
            if pid in find_marked(root):
                signal.pidfd_send_signal(descriptor, sent)
    deadline = time.monotonic() + wait_s
    waiting = set(open_fds)
    while waiting and (left_s := deadline - time.monotonic()) > 0:
        for descriptor, _ in poller.poll(left_s * 1000):
            poller.unregister(descriptor)
            waiting.discard(descriptor)
    for descriptor in open_fds:
        os.close(descriptor)
