"""The one tree of errors, by what the caller can do next.

    LlmgwError
    ├── UsageError        400  exit  2   say it differently
    ├── ConfigError       422  exit  3   mend the configuration
    ├── NotFoundError     404  exit  4   name something that exists
    ├── ConflictError     409  exit  5   the thing is in another state; look, then decide
    ├── PermissionError_  403  exit  6   ask somebody who may
    ├── RefusedError      429  exit  7   a policy or a limit says no; later, or change the policy
    ├── TimedOutError     504  exit  8   it took too long; try again or raise the limit
    ├── UnavailableError  503  exit  9   not now; try again
    ├── DependencyError   502  exit 10   something that we lean on failed; its own words are in the message
    └── BugError          500  exit  1   report it

Every error carries a stable `code` (snake_case, for programs), a `message` (what happened to which thing) and
a `hint` (a command or a setting, or nothing). Leaves stand beside the code that raises them and only set `code`.
Errors never carry secrets: messages are logged and sent to clients.
"""

from typing import ClassVar


class LlmgwError(Exception):
    """Base of all errors that a person or a client may see."""

    code: str = "error"
    exit_code: ClassVar[int] = 1
    http_status: int = 500

    def __init__(self, message: str, *, hint: str = "", code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        return self.message

    def render(self) -> str:
        """The two lines that a terminal shows: `error: … [code]` and, where there is one, `hint: …`."""
        text = f"error: {self.message}  [{self.code}]"
        return f"{text}\nhint: {self.hint}" if self.hint else text


class UsageError(LlmgwError):
    """What was asked makes no sense as asked."""

    code = "usage"
    exit_code = 2
    http_status = 400


class ConfigError(LlmgwError):
    """The configuration cannot be used."""

    code = "config_invalid"
    exit_code = 3
    http_status = 422


class NotFoundError(LlmgwError):
    """What was named does not exist here."""

    code = "not_found"
    exit_code = 4
    http_status = 404


class ConflictError(LlmgwError):
    """The thing exists, but in a state that forbids this."""

    code = "conflict"
    exit_code = 5
    http_status = 409


class PermissionError_(LlmgwError):  # noqa: N801 - the builtin of that name stays usable beside it
    """The caller may not do this."""

    code = "permission_denied"
    exit_code = 6
    http_status = 403


class RefusedError(LlmgwError):
    """A policy or a limit says no."""

    code = "refused"
    exit_code = 7
    http_status = 429


class TimedOutError(LlmgwError):
    """A deadline passed."""

    code = "timed_out"
    exit_code = 8
    http_status = 504


class UnavailableError(LlmgwError):
    """Not now; the same request may succeed later."""

    code = "unavailable"
    exit_code = 9
    http_status = 503


class DependencyError(LlmgwError):
    """Something that we lean on (a command, a service, an index) failed."""

    code = "dependency_failed"
    exit_code = 10
    http_status = 502


class BugError(LlmgwError):
    """Our own invariant broke."""

    code = "internal_error"
    exit_code = 1
    http_status = 500


BY_STATUS: dict[int, type[LlmgwError]] = {
    kind.http_status: kind
    for kind in (
        UsageError, ConfigError, NotFoundError, ConflictError, PermissionError_,
        RefusedError, TimedOutError, UnavailableError, DependencyError, BugError,
    )
}  # fmt: skip
"""Which error an HTTP answer of our own daemon stands for."""
