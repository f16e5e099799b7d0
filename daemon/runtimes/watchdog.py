"""Does a running engine move? Samples of its progress -> what to do about it. Pure.

Health says little: engines whose generation is deadlocked go on answering it for hours, and a good one under a
thousand requests answers it late. So the watchdog looks at progress alone: bytes of answers and the engine's own
counters. While requests are owed something and neither grows, time is added up; any growth clears it, so an engine
that moves, however slowly, is never touched. From there on:

    still for `eject_after_s`        out of rotation: new requests go elsewhere or wait
    its clients all gave up          back into rotation, as one failure; too many failures in a window: restart
    still for `restart_after_s`      restart: the time since the ejection was its drain
    it moves again                   back into rotation

A restart is not repeated within a cooldown. A second in which an engine without a GPU used the CPU counts for a fifth:
that is how a long prompt looks, whose tokens show only at its end.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

_MAX_STEP_S = 5.0
"""What one sample may add: after a pause of the whole machine nothing has stood still."""

_COMPUTING_CORES = 0.5
_COMPUTING_WEIGHT = 0.2


class Verdict(StrEnum):
    """What one more sample means."""

    MOVES = "moves"
    """Or owes nobody anything."""
    STUCK = "stuck"
    """It should be out of rotation."""
    GIVEN_UP = "given-up"
    """It was stuck, and nobody waits for it any more: let it try again."""
    DEAD = "dead"
    """It should be restarted."""


@dataclass(frozen=True, slots=True)
class Limits:
    """One runtime's settings."""

    eject_after_s: float = 20.0
    restart_after_s: float = 120.0
    failure_threshold: int = 3
    failure_window_s: float = 600.0
    cooldown_s: float = 600.0


@dataclass(frozen=True, slots=True)
class Sample:
    """What is known of one runtime at one moment."""

    at_s: float
    owes: bool
    """Requests are under way whose next byte is the engine's to send."""
    bytes_total: int
    """Of answers, over all gateway workers."""
    steps: float | None = None
    """The engine's own counters, summed; None: not known now."""
    cpu_cores: float | None = None
    """Cores that its processes used lately; None: not known, or no sign of anything (it computes on a GPU)."""


@dataclass(frozen=True, slots=True)
class Watched:
    """What the samples so far have come to."""

    at_s: float | None = None
    bytes_total: int = 0
    steps: float | None = None
    still_s: float = 0.0
    """Time owed without any progress, weighted."""
    stuck: bool = False
    failures: tuple[float, ...] = ()
    """When its clients gave up."""
    restarted_at_s: float | None = None

    def restarted(self, at_s: float) -> "Watched":
        """A new life: only the restart is remembered."""
        return Watched(restarted_at_s=at_s)

    def anew(self) -> "Watched":
        """Another life that the watchdog did not order."""
        return Watched(failures=self.failures, restarted_at_s=self.restarted_at_s)


def judge(before: Watched, sample: Sample, limits: Limits) -> tuple[Watched, Verdict]:
    """One more sample. `DEAD` is repeated until the caller restarts it."""
    after = replace(
        before,
        at_s=sample.at_s,
        bytes_total=sample.bytes_total,
        steps=before.steps if sample.steps is None else sample.steps,
        failures=tuple(at_s for at_s in before.failures if sample.at_s - at_s <= limits.failure_window_s),
    )
    if before.at_s is None or _has_moved(before, sample):
        return replace(after, still_s=0.0, stuck=False), Verdict.MOVES
    if not sample.owes:
        return _without_requests(after, sample.at_s, limits)
    step_s = min(_MAX_STEP_S, sample.at_s - before.at_s)
    computes = sample.cpu_cores is not None and sample.cpu_cores >= _COMPUTING_CORES
    after = replace(after, still_s=before.still_s + step_s * (_COMPUTING_WEIGHT if computes else 1.0))
    if after.still_s >= limits.restart_after_s and _may_restart(after, sample.at_s, limits):
        return replace(after, stuck=True), Verdict.DEAD
    if after.still_s >= limits.eject_after_s:
        return replace(after, stuck=True), Verdict.STUCK
    return after, Verdict.MOVES


def _without_requests(after: Watched, at_s: float, limits: Limits) -> tuple[Watched, Verdict]:
    """Nobody waits. What stood still so far is kept for the next request: short-lived clients must not hide it."""
    if not after.stuck:
        return after, Verdict.MOVES
    failures = (*after.failures, at_s)
    if len(failures) >= limits.failure_threshold and _may_restart(after, at_s, limits):
        return after, Verdict.DEAD
    return replace(after, failures=failures, still_s=0.0, stuck=False), Verdict.GIVEN_UP


def _has_moved(before: Watched, sample: Sample) -> bool:
    """A counter that fell tells of a worker or an engine that is gone, not of progress."""
    has_steps = sample.steps is not None and before.steps is not None and sample.steps > before.steps
    return has_steps or sample.bytes_total > before.bytes_total


def _may_restart(after: Watched, at_s: float, limits: Limits) -> bool:
    return after.restarted_at_s is None or at_s - after.restarted_at_s >= limits.cooldown_s


def owes(*, active: int, held_back: int, stalled_s: float, slots: int, has_counters: bool) -> bool:
    """Whether requests are under way that the engine should move.

    Not when clients that do not read fill its slots. An engine without counters shows nothing while it writes a
    buffered answer, so there only streams count (`stalled_s` is theirs).
    """
    if active - held_back <= 0 or held_back >= slots:
        return False
    return has_counters or stalled_s > 0
