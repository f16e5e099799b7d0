"""Which service manager runs our units: chosen by name, loaded by name.

The one place that imports by a string: the systemd back end needs GLib and pydbus, which a machine without systemd
need not have, and each program loads only the one that it uses.
"""

import importlib
from pathlib import Path
from typing import Protocol

from core.errors import ConfigError, DependencyError
from core.paths import Layout
from units.backend import UnitBackend

BACKENDS = {
    "systemd": ("units.systemd.backend", "SystemdBackend"),
    "embedded": ("units.embedded.backend", "EmbeddedBackend"),
}

SYSTEMD_RUNS = Path("/run/systemd/system")
"""Exists exactly where systemd is PID 1 (`sd_booted`)."""


class BackendUnavailable(DependencyError):
    """The back end's libraries are missing."""

    code = "service_manager_unavailable"


class _BackendClass(Protocol):
    def from_layout(self, layout: Layout) -> UnitBackend: ...


def choose_backend(layout: Layout) -> str:
    """`systemd` for the system layout on a machine that it runs; a layout of its own has a supervisor of its own."""
    return "systemd" if layout.units == SYSTEMD_RUNS and SYSTEMD_RUNS.is_dir() else "embedded"


def load_backend(name: str, layout: Layout) -> UnitBackend:
    """The back end `name`, not yet connected. Call it on the event loop that will use it.

    Raises: ConfigError for an unknown name, BackendUnavailable when its libraries are missing.
    """
    if name not in BACKENDS:
        raise ConfigError(f"there is no service manager {name!r}", hint=f"one of: {', '.join(BACKENDS)}")
    module, class_name = BACKENDS[name]
    try:
        backend: _BackendClass = getattr(importlib.import_module(module), class_name)
    except ImportError as error:
        raise BackendUnavailable(
            f"the {name} back end cannot be loaded: {error}", hint="apt-get install python3-gi python3-pydbus"
        ) from error
    return backend.from_layout(layout)
