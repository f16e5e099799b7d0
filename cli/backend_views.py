"""How a backend reads in a terminal. Pure."""

from datetime import datetime

from cli.views import age
from core.api import BackendStatus

BACKEND_COLUMNS = ("ID", "STATE", "URL", "KEY", "REQUESTS", "MODELS", "LAST ERROR")


def backend_row(backend: BackendStatus, now: datetime) -> tuple[str, ...]:
    """One backend under `BACKEND_COLUMNS`."""
    return (
        backend.id,
        backend.state,
        backend.base_url,
        "set" if backend.has_key else "none",
        requests(backend),
        ", ".join(backend.models) or "-",
        last_error(backend, now),
    )


def requests(backend: BackendStatus) -> str:
    """`3`, or `3 of 8` where it may have no more."""
    limit = f" of {backend.max_concurrency}" if backend.max_concurrency is not None else ""
    waiting = f", {backend.queued_requests} wait" if backend.queued_requests else ""
    return f"{backend.active_requests}{limit}{waiting}"


def last_error(backend: BackendStatus, now: datetime) -> str:
    """What it failed of, and when."""
    if backend.reason:
        return backend.reason
    return f"{age(backend.last_error_at, now)} ago: {backend.last_error}" if backend.last_error else "-"


def backend_details(backend: BackendStatus, now: datetime) -> list[str]:
    """All of one backend, a fact per line."""
    key = f"set, from {backend.key_from}" if backend.key_from else "set" if backend.has_key else "none"
    rows = [
        ("state", backend.state),
        ("url", backend.base_url),
        ("key", key),
        ("requests", requests(backend)),
        ("models", ", ".join(backend.models) or "-"),
        ("last error", last_error(backend, now)),
    ]
    return [backend.id, *(f"  {name:10} {value}" for name, value in rows)]
