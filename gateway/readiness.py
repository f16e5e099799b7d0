"""What to tell a client whose model has no ready target, and whether a start should be asked for.

Pure. Of several targets the most hopeful one speaks: a model that loads in one place and has failed in another is
loading. `Retry-After` is sent only where waiting helps.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from core.api import RouteTarget
from core.runtime import RuntimeState
from gateway.errors import ApiError
from gateway.table import ModelEntry, offers


@dataclass(frozen=True, slots=True)
class _Rule:
    """How one state of a runtime reads to a client."""

    code: str
    sentence: str
    retry_after_s: int
    start: bool = False


_LOADING = _Rule("model_loading", "is being loaded", 5)
_HELD = _Rule("runtime_stopped", "was stopped by an operator", 0)
_ADAPTER = _Rule("adapter_busy", "waits for its adapter to be loaded", 2)
_UNKNOWN = _Rule("runtime_not_ready", "is not ready", 2)
_RULES: dict[str, _Rule] = {
    RuntimeState.RUNNING: _Rule("runtime_not_ready", "runs but is out of rotation", 2),
    RuntimeState.WARMING: _LOADING,
    RuntimeState.STARTING: _LOADING,
    RuntimeState.QUEUED: _Rule("model_loading", "waits for room to be loaded", 5),
    RuntimeState.STOPPED: _Rule("model_loading", "is being started for this request", 5, start=True),
    RuntimeState.DRAINING: _Rule("runtime_not_ready", "is being stopped", 5),
    RuntimeState.STOPPING: _Rule("runtime_not_ready", "is being stopped", 5),
    RuntimeState.FAILED: _Rule("runtime_failed", "has failed", 0),
    "disabled": _Rule("backend_disabled", "is served by a backend that is switched off", 0),
}
_HOPE = (
    RuntimeState.RUNNING, RuntimeState.WARMING, RuntimeState.STARTING, RuntimeState.QUEUED, RuntimeState.STOPPED,
    RuntimeState.DRAINING, RuntimeState.STOPPING, "", RuntimeState.FAILED, "disabled",
)  # fmt: skip
"""States from the most hopeful to the least; one that we do not know stands where the empty one does."""


@dataclass(frozen=True, slots=True)
class Unready:
    """The answer, of whom it speaks, and whether the daemon is to be asked for a start."""

    error: ApiError
    target: RouteTarget | None = None
    starts: bool = False

    @property
    def awaits_adapter(self) -> bool:
        """Whether the target could answer if it had the model's adapter."""
        return self.target is not None and _awaits_adapter(self.target)


def explain_unready(entry: ModelEntry, path: str, asked: str) -> Unready:
    """Why nobody can answer this request now. `asked` is the id that the client used."""
    targets = [target for target in entry.model.targets if offers(target, path)]
    if not targets and entry.model.targets:
        return Unready(
            ApiError(400, "wrong_model_kind", f"The model '{asked}' does not serve {path}.", model=asked),
        )
    if not targets:
        return Unready(ApiError(503, "no_target", f"Nothing here serves the model '{asked}'.", model=asked))
    best = most_hopeful(targets)
    rule = _rule_of(best)
    message = f"The model '{asked}' {rule.sentence}" + (f": {best.reason}." if best.reason else ".")
    error = ApiError(
        503,
        rule.code,
        message,
        model=asked,
        state=best.state,
        reason=best.reason,
        retry_after_s=rule.retry_after_s,
    )
    return Unready(error, best, rule.start)


def find_sleeping(entry: ModelEntry, path: str) -> RouteTarget | None:
    """A runtime that could be started for requests on this path; None: there is none."""
    return next(
        (
            target
            for target in entry.model.targets
            if target.runtime and target.state == RuntimeState.STOPPED and not _is_held(target) and offers(target, path)
        ),
        None,
    )


def most_hopeful(targets: Sequence[RouteTarget]) -> RouteTarget:
    """The target that is nearest to serving; the first of equals."""
    return min(targets, key=_hopelessness)


def _hopelessness(target: RouteTarget) -> int:
    if _is_held(target):
        return len(_HOPE)
    known = target.state if target.state in _RULES else ""
    return _HOPE.index(known)


def _rule_of(target: RouteTarget) -> _Rule:
    if _is_held(target):
        return _HELD
    return _ADAPTER if _awaits_adapter(target) else _RULES.get(target.state, _UNKNOWN)


def _awaits_adapter(target: RouteTarget) -> bool:
    return target.ready and not target.is_usable


def _is_held(target: RouteTarget) -> bool:
    """An operator stopped it. While it still stops, the answer is already that it stays stopped."""
    return target.hold and target.state in (RuntimeState.STOPPED, RuntimeState.STOPPING, RuntimeState.DRAINING)
