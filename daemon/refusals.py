"""What the node says when it does not do what was asked of a runtime; the local API answers it."""

from core.errors import ConflictError, DependencyError, NotFoundError, UnavailableError


class RuntimeUnknown(NotFoundError):
    """No runtime of that id in the config."""

    code = "runtime_unknown"


class RuntimeDisabled(ConflictError):
    """The config says `enabled: false`."""

    code = "runtime_disabled"


class RuntimeHeld(ConflictError):
    """An operator stopped the runtime, so a client's request does not start it."""

    code = "runtime_held"


class ServingStopped(UnavailableError):
    """An operator freed the whole node."""

    code = "system_stopped"


class RuntimeStartFailed(DependencyError):
    """The runtime was asked to start and failed."""

    code = "runtime_failed"


class StartOverruled(ConflictError):
    """Somebody stopped the runtime, or took it out of the config, before it ran."""

    code = "runtime_start_overruled"


class StopOverruled(ConflictError):
    """Somebody started the runtime again before it had stopped."""

    code = "runtime_stop_overruled"
