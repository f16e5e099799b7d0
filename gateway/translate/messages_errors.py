"""Errors in Anthropic's words: `{"type": "error", "error": {"type": …, "message": …}}`.

Our own stable `code`, and the model with its state, stand beside what Anthropic has: clients of that API ignore what
they do not know, and whoever reads logs needs it.
"""

import msgspec
from msgspec import Raw

from gateway.errors import ApiError
from gateway.translate.sse import write_event

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}

Json = dict[str, object]


class _Inside(msgspec.Struct, frozen=True):
    message: str = ""


class _Said(msgspec.Struct, frozen=True):
    """An engine's error: OpenAI's envelope, a bare text in it (vLLM's 401), or FastAPI's own words."""

    type: str | None = None
    error: _Inside | str | None = None
    message: str | None = None
    detail: Raw = Raw()


_said = msgspec.json.Decoder(_Said)


def error_type(status: int) -> str:
    """Anthropic's word for an HTTP status."""
    return _TYPES.get(status) or ("invalid_request_error" if status < 500 else "api_error")


def write_error(status: int, message: str, **optional: str) -> bytes:
    """The body of an error answer; empty optional values are left out."""
    return msgspec.json.encode(_envelope(status, message, optional))


def write_api_error(error: ApiError) -> bytes:
    """One of our own."""
    optional = {"code": error.code, "model": error.model, "state": error.state, "reason": error.reason}
    return write_error(error.http_status, error.message, **optional)


def write_error_event(status: int, message: str, **optional: str) -> bytes:
    """How a stream that broke ends, in place of `message_stop`."""
    return write_event("error", _envelope(status, message, optional))


def read_message(body: bytes) -> str:
    """What an engine's error says, in whatever envelope; empty when it says nothing."""
    try:
        said = _said.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return ""
    inside = said.error.message if isinstance(said.error, _Inside) else said.error
    return inside or said.message or bytes(said.detail).decode("utf-8", "replace")


def translate_refusal(status: int, body: bytes) -> bytes:
    """What an engine said against a request. One that speaks Anthropic's own words is quoted as it is."""
    message = read_message(body)
    if message and is_anthropic(body):
        return body
    return write_error(status, message or f"The engine refused the request with status {status}.")


def is_anthropic(body: bytes) -> bool:
    """Whether an error that could be read is in Anthropic's envelope."""
    said = _said.decode(body)
    return said.type == "error" and isinstance(said.error, _Inside)


def _envelope(status: int, message: str, optional: dict[str, str]) -> Json:
    error = {"type": error_type(status), "message": message}
    error.update({name: value for name, value in optional.items() if value})
    # A lone surrogate cannot be encoded; it becomes "?", the error stays an error.
    printable = {name: value.encode("utf-8", "replace").decode() for name, value in error.items()}
    return {"type": "error", "error": printable}
