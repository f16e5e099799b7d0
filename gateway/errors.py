"""What a client sees when something is refused or fails: one envelope, whatever went wrong and wherever.

    {"error": {"message": …, "type": …, "code": …, "model"?: …, "state"?: …, "reason"?: …}}

`type` is the coarse word that SDKs look at, `code` the stable one for programs. Authentication failures carry
no detail at all, so that every one of them is the same bytes. Nothing that an upstream or an exception said
about hosts, ports, keys or files belongs in here.
"""

import msgspec

from core.errors import LlmgwError

_LONGEST_ECHO = 200
"""Characters of a client's own value that an error repeats."""

_TYPES: dict[int, str] = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
    503: "service_unavailable",
}


def error_type(status: int) -> str:
    """OpenAI's coarse word for an HTTP status."""
    known = _TYPES.get(status)
    if known is not None:
        return known
    return "invalid_request_error" if status < 500 else "server_error"


class ApiError(LlmgwError):
    """A refusal or failure as the client will see it. Raised anywhere below a route, rendered in one place."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        model: str = "",
        state: str = "",
        reason: str = "",
        retry_after_s: int = 0,
    ) -> None:
        super().__init__(message, code=code)
        self.http_status = status
        self.model = model
        self.state = state
        self.reason = reason
        self.retry_after_s = retry_after_s
        """0: trying again soon would not help, so no `Retry-After` is sent."""

    def headers(self) -> list[tuple[str, str]]:
        """What belongs beside the body: how to authenticate, when to come back."""
        headers = []
        if self.http_status == 401:
            headers.append(("www-authenticate", "Bearer"))
        if self.retry_after_s > 0:
            headers.append(("retry-after", str(self.retry_after_s)))
        return headers

    def body(self) -> bytes:
        """The JSON envelope."""
        optional = {"model": self.model, "state": self.state, "reason": self.reason}
        return envelope(self.http_status, self.code, self.message, **optional)


def envelope(status: int, code: str, message: str, **optional: str) -> bytes:
    """The one JSON body of every error; empty optional values are left out."""
    error = {"message": message, "type": error_type(status), "code": code}
    error.update({name: value for name, value in optional.items() if value})
    # A lone surrogate (a client may send "\ud800") cannot be encoded; it becomes "?", the error stays an error.
    printable = {name: value.encode("utf-8", "replace").decode() for name, value in error.items()}
    return msgspec.json.encode({"error": printable})


def stream_error_event(code: str, message: str) -> bytes:
    """How a stream that broke after its head ends: an error event, and never `[DONE]`."""
    return b"data: " + envelope(502, code, message) + b"\n\n"


def cut(value: str) -> str:
    """A client's own value, short enough to be repeated in a message and a log line."""
    return value if len(value) <= _LONGEST_ECHO else f"{value[:_LONGEST_ECHO]}…"


def unauthorized() -> ApiError:
    """No usable credential: the same bytes for a missing, wrong, malformed or expired one."""
    return ApiError(401, "unauthorized", "A valid API key is required.")


def remote_admin_disabled() -> ApiError:
    """The gateway listens off loopback, and its config does not let admins change things from there."""
    return ApiError(
        403, "remote_admin_disabled", "This node is changed on the machine itself; `security.allowRemoteAdmin` is off."
    )


def admin_key_required() -> ApiError:
    """Off loopback an inference key is never enough to change anything."""
    return ApiError(403, "admin_key_required", "Changing this node from afar takes a key of `security.adminApiKeys`.")


def unknown_model(model: str) -> ApiError:
    """The model is not in the table, or not visible here."""
    shown = cut(model)
    return ApiError(404, "unknown_model", f"The model '{shown}' does not exist on this gateway.", model=shown)


def model_not_allowed(model: str) -> ApiError:
    """The key is for other models. Said alike of those that exist and of those that do not."""
    shown = cut(model)
    return ApiError(403, "model_not_allowed", f"This API key may not use the model '{shown}'.", model=shown)


def system_stopped() -> ApiError:
    """An operator freed the node; nobody but an operator ends that."""
    return ApiError(503, "system_stopped", "This node was stopped by its operator and serves no requests now.")


def not_ready() -> ApiError:
    """No route table has been seen yet."""
    return ApiError(503, "gateway_not_ready", "The gateway has not learnt yet which models it serves.", retry_after_s=2)
