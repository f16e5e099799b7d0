"""Which LoRA adapter of a runtime makes room for another. Pure.

An engine holds so many adapters and no more. One that requests are at, or wait for a slot of, stays: of the idle ones
the least recently used goes. Where none is idle the newcomer waits; when it has waited for long, the adapter that has
been there longest is closed to new requests, so that a busy few cannot keep the others out for ever.
"""

from collections.abc import Sequence
from dataclasses import dataclass

PATIENCE_S = 2.0
"""How long a newcomer waits for an adapter to become idle by itself."""
STAY_S = 1.0
"""How long one that was never used since it came is kept: whoever wanted it is on the way."""


@dataclass(frozen=True, slots=True)
class Held:
    """One adapter that the engine has."""

    name: str
    held_s: float
    """For how long."""
    in_use: int = 0
    """Requests at the engine or waiting for a slot, over all gateway workers."""
    idle_s: float | None = None
    """Since the last of them ended; None: there never was one."""
    is_declared: bool = True
    """Whether a model of the config is this adapter."""

    @property
    def was_used(self) -> bool:
        """Whether a request for it has ended since it came."""
        return self.idle_s is not None and self.idle_s < self.held_s

    @property
    def is_idle(self) -> bool:
        if self.in_use:
            return False
        return self.was_used or self.held_s >= STAY_S or not self.is_declared

    @property
    def unused_s(self) -> float:
        """For how long nobody has needed it."""
        return self.held_s if self.idle_s is None else min(self.idle_s, self.held_s)


@dataclass(frozen=True, slots=True)
class Load:
    """There is room."""


@dataclass(frozen=True, slots=True)
class Unload:
    """This one goes."""

    name: str
    drains: bool = False
    """It is in use: close it to new requests, and wait for those under way."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing can go yet."""


Step = Load | Unload | Wait


def next_step(held: Sequence[Held], slots: int, waited_s: float) -> Step:
    """What to do for an adapter that is not there and has been waited for so long."""
    if len(held) < slots:
        return Load()
    idle = [one for one in held if one.is_idle]
    if idle:
        return Unload(max(idle, key=lambda one: (not one.is_declared, one.unused_s)).name)
    if waited_s >= PATIENCE_S:
        longest = max(held, key=lambda one: one.held_s)
        if longest.held_s >= PATIENCE_S:
            return Unload(longest.name, drains=True)
    return Wait()


def pause_s(failures: int) -> float:
    """How long after so many failures in a row an adapter is not tried again: 5 s, doubled each time, 5 min at most."""
    return min(300.0, 5.0 * 2.0 ** (failures - 1))
