"""What every runtime's controller of a node shares: the service manager, a client, the log, and the node's ears."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass

from core.clock import Clock
from core.http.client import HttpClient
from core.log import EventLogger
from core.runtime import Authority
from daemon.runtimes.memory_guard import MemoryGuard
from daemon.runtimes.release import CardReader
from daemon.runtimes.warmup import WarmupCall
from units.backend import UnitBackend


@dataclass(frozen=True, slots=True)
class Surround:
    """See the module. Built once, by the node."""

    backend: UnitBackend
    http: HttpClient
    log: EventLogger
    spawn: Callable[[Coroutine[None, None, None]], asyncio.Task[None]]
    """Starts a job in the node's task group, its owner."""
    changed: Callable[[], None]
    """Called after every change that others may want to see."""
    is_ours: Callable[[Authority], bool]
    """Whether a crash of such a runtime is this node's to answer, or its owner's."""
    stopped_outside: Callable[[str], None]
    """Somebody stopped the unit with the service manager's own tools."""
    wait_silent: Callable[[str], Coroutine[None, None, None]]
    """Returns when no gateway sends the runtime anything any more and nothing is under way."""
    clock: Clock
    guard: MemoryGuard
    read_cards: CardReader
    warmup: Callable[[str], WarmupCall | None]
    """What a runtime is asked before clients are let in; None: nothing."""
