"""Where an exception becomes an answer: ours, Falcon's own, and those that nobody expected.

Everything leaves in the one envelope; on Anthropic's routes that is Anthropic's. What was not expected is logged with
its place and told to the client as `internal_error` and nothing else.
"""

import traceback

import falcon
from falcon.asgi import App, Request, Response

from core.errors import LlmgwError
from core.log import EventLogger
from gateway.errors import ApiError, envelope
from gateway.translate.messages_errors import write_api_error
from gateway.translate.messages_errors import write_error as write_anthropic_error

_MESSAGES = "/v1/messages"
_MODELS = "/v1/models"
_CODES = {
    400: "invalid_request",
    404: "not_found",
    405: "method_not_allowed",
    413: "body_too_large",
    415: "unsupported_content_type",
}
"""Our codes for what Falcon raises by itself."""


def speaks_anthropic(path: str) -> bool:
    """Whether a path belongs to Anthropic's API."""
    return path == _MESSAGES or path.startswith(_MESSAGES + "/")


def asks_anthropic(req: Request) -> bool:
    """Whether a request for a path that both APIs have (`/v1/models`) comes from a client of Anthropic's."""
    is_shared = req.path == _MODELS or req.path.startswith(_MODELS + "/")
    return is_shared and req.get_header("anthropic-version") is not None


def write_error(resp: Response, error: LlmgwError, path: str) -> None:
    """Turn a response into the envelope of one of our errors, in the words of the path that was asked."""
    resp.content_type = falcon.MEDIA_JSON
    resp.status = error.http_status
    if isinstance(error, ApiError):
        for name, value in error.headers():
            resp.set_header(name, value)
        resp.data = write_api_error(error) if speaks_anthropic(path) else error.body()
    else:
        resp.data = _render(path, error.http_status, error.code, error.message)


def _render(path: str, status: int, code: str, message: str) -> bytes:
    if speaks_anthropic(path):
        return write_anthropic_error(status, message, code=code)
    return envelope(status, code, message)


def add_handlers(app: App[Request, Response], log: EventLogger) -> None:
    """Make every way for a request to fail end in the envelope."""

    async def on_ours(req: Request, resp: Response, error: LlmgwError, params: dict[str, object]) -> None:
        write_error(resp, error, _path_of(req))

    async def on_falcons(req: Request, resp: Response, error: falcon.HTTPError, params: dict[str, object]) -> None:
        write_falcon_error(req, resp, error)

    async def on_unexpected(req: Request, resp: Response, error: Exception, params: dict[str, object]) -> None:
        log.error("request_broke", method=req.method, path=req.path, error=repr(error), at=_place_of(error))
        write_error(resp, ApiError(500, "internal_error", "The gateway could not process this request."), _path_of(req))

    app.add_error_handler(Exception, on_unexpected)
    app.add_error_handler(falcon.HTTPError, on_falcons)
    app.add_error_handler(LlmgwError, on_ours)


def write_falcon_error(req: Request, resp: Response, error: falcon.HTTPError) -> None:
    """One of Falcon's own errors in our envelope, with its headers (`Allow`)."""
    for name, value in dict(error.headers or {}).items():
        resp.set_header(name, value)
    status = error.status_code
    message = error.description or f"{req.method} {req.path[:200]}: {error.title or 'not possible'}"
    resp.content_type = falcon.MEDIA_JSON
    resp.status = error.status
    resp.data = _render(_path_of(req), status, _CODES.get(status, "error"), message)


def _path_of(req: Request) -> str:
    """The path whose words the client reads."""
    return _MESSAGES if asks_anthropic(req) else req.path


def _place_of(error: Exception) -> str:
    """The innermost frames, on one line."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    return " < ".join(f"{frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in reversed(frames))
