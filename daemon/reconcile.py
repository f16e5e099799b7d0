"""What to change on this node: wanted against seen -> actions. Pure.

Every pass computes the whole list again from what is true now, so whatever broke off half-way is finished by the
next pass. `--dry-run` is this same computation, printed.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from core.runtime import ENDING, RuntimeState


@dataclass(frozen=True, slots=True)
class Wanted:
    """What one runtime should be."""

    run: bool
    spec_hash: str = ""
    hold: bool = False
    """An operator stopped it: the unit file stays as the record of that."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """What one runtime is."""

    state: RuntimeState
    has_unit: bool = False
    unit_hold: bool = False
    spec_hash: str = ""
    """Of the unit on disk, or of the attempt that failed."""
    restart: bool = False
    """Somebody asked for a restart that has not happened yet."""
    restart_reason: str = ""
    note_due: bool = False
    """The unit file does not say what became of it: why it was given up, or that this (or its leaving) is over."""


@dataclass(frozen=True, slots=True)
class Start:
    runtime_id: str
    reason: str
    devices: tuple[str, ...] = ()
    """Cards that admission chose; a plan of what is wanted does not know them yet."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop the unit. Why is written into its file first, so that the daemon after one that dies half-way goes on."""

    runtime_id: str
    reason: str
    hold: bool = False
    """An operator wants it."""
    leave: bool = False
    """Nobody wants it to run now; whoever asks later gets it back."""


@dataclass(frozen=True, slots=True)
class Remove:
    """Take the unit file of a stopped runtime away."""

    runtime_id: str


@dataclass(frozen=True, slots=True)
class Hold:
    """Write into the unit file of a stopped runtime that only an operator may start it."""

    runtime_id: str


@dataclass(frozen=True, slots=True)
class Note:
    """Write into the unit file why the runtime was given up, or that this is over."""

    runtime_id: str


Action = Start | Stop | Remove | Hold | Note

_UP = frozenset({RuntimeState.STARTING, RuntimeState.WARMING, RuntimeState.RUNNING})


def reconcile(wanted: Mapping[str, Wanted], seen: Mapping[str, Seen]) -> list[Action]:
    """The next actions, in the order of ids; at most one for each runtime."""
    actions = (
        _next(runtime_id, wanted.get(runtime_id, Wanted(run=False, reason="not in the config")), seen[runtime_id])
        for runtime_id in sorted(seen)
    )
    return [action for action in actions if action is not None]


def _next(runtime_id: str, want: Wanted, seen: Seen) -> Action | None:
    if seen.state in ENDING:
        return None
    if want.run:
        return _towards_running(runtime_id, want, seen)
    if seen.state in _UP or seen.state is RuntimeState.QUEUED or (seen.state is RuntimeState.FAILED and want.hold):
        return Stop(runtime_id, want.reason, hold=want.hold, leave=not want.hold)
    if not seen.has_unit or seen.unit_hold is want.hold is True:
        return None
    return Hold(runtime_id) if want.hold else Remove(runtime_id)


def _towards_running(runtime_id: str, want: Wanted, seen: Seen) -> Action | None:
    changed = seen.spec_hash != want.spec_hash
    if seen.state in _UP:
        if seen.restart:
            return Stop(runtime_id, seen.restart_reason or "restart requested")
        if changed:
            return Stop(runtime_id, "its settings changed")
        return Note(runtime_id) if seen.note_due else None
    if seen.state is RuntimeState.FAILED and not seen.restart and not changed:
        # It is not retried by itself: an operator, or a changed setting, does. Nor by the next daemon.
        return Note(runtime_id) if seen.note_due else None
    # A queued one is started again in every pass: admission lets it through when there is room.
    return Start(runtime_id, want.reason)
