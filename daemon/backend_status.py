"""How each backend stands, from the config and from what the gateway's workers have met there. Pure.

Nobody asks a backend anything of our own: it costs the operator money, and only real requests tell how it is.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from core.activity import BackendActivity
from core.api import BackendStatus
from core.config.backend import Backend
from core.config.schema import Config
from daemon.backend_keys import KeyFile
from daemon.routes import backend_state

Said = Sequence[tuple[BackendActivity, float]]
"""What each worker says, and how many seconds ago it did."""

_STATES = (("out", "out"), ("returning", "out"), ("resting", "resting"))
"""A worker's word for how it stands -> ours; the worst counts."""


def backend_status(config: Config, name: str, key: KeyFile, said: Said, *, now_s: float) -> BackendStatus:
    """One of the config's. `now_s` is since the epoch."""
    backend = config.backends[name]
    error, at_s = _last_error(said, now_s)
    return BackendStatus(
        id=name,
        state=_state(backend, key, said),
        reason=key.fault,
        base_url=backend.base_url,
        has_key=bool(backend.api_key),
        key_from=backend.api_key_env,
        models=[model.id for model in config.models if any(place.backend == name for place in model.places())],
        max_concurrency=backend.max_concurrency,
        active_requests=sum(one.active for one, _ in said),
        queued_requests=sum(one.waiting for one, _ in said),
        last_error=error,
        last_error_at=_time(at_s) if error else "",
    )


def _state(backend: Backend, key: KeyFile, said: Said) -> str:
    state = backend_state(backend, key)
    if state != "ready":
        return state
    standings = {one.standing for one, _ in said}
    return next((ours for theirs, ours in _STATES if theirs in standings), state)


def _last_error(said: Said, now_s: float) -> tuple[str, float]:
    """The latest of all, and when it was."""
    failures = [
        (now_s - age_s - one.failed_ago_s, one.error)
        for one, age_s in said
        if one.failed_ago_s is not None and one.error
    ]
    at_s, error = max(failures, default=(0.0, ""))
    return error, at_s


def _time(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def backend_statuses(
    config: Config, keys: Mapping[str, KeyFile], said: Mapping[str, Said], *, now_s: float
) -> list[BackendStatus]:
    """All of them, by name."""
    return [
        backend_status(config, name, keys.get(name, KeyFile()), said.get(name, ()), now_s=now_s)
        for name in sorted(config.backends)
    ]
