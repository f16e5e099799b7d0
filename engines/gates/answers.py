"""How a gate answers: JSON, and errors in the envelope that engines and the gateway share."""

from collections.abc import Mapping

import falcon
import msgspec
from falcon.asgi import Request, Response

from core.errors import LlmgwError


def write_json(resp: Response, value: object, status: int = 200) -> None:
    resp.status = status
    resp.content_type = falcon.MEDIA_JSON
    resp.data = msgspec.json.encode(value)


def write_error(resp: Response, status: int, code: str, message: str, facts: Mapping[str, int] | None = None) -> None:
    """`{"error": {"message", "type", "code", …}}`; `facts` are numbers that a program may act on."""
    kind = "authentication_error" if status == 401 else "server_error" if status >= 500 else "invalid_request_error"
    write_json(resp, {"error": {"message": message, "type": kind, "code": code, **(facts or {})}}, status)


async def answer_llmgw_error(
    req: Request, resp: Response | None, error: BaseException, params: dict[str, object]
) -> None:
    """One of our own errors: its status, code and message."""
    if resp is not None and isinstance(error, LlmgwError):
        write_error(resp, error.http_status, error.code, error.message, getattr(error, "facts", None))


async def answer_http_error(
    req: Request, resp: Response | None, error: BaseException, params: dict[str, object]
) -> None:
    """What Falcon itself refuses (no such path, wrong method, a broken multipart body)."""
    if resp is None or not isinstance(error, falcon.HTTPError):
        return
    write_error(resp, error.status_code, "not_found" if error.status_code == 404 else "refused", error.title or "no")
    for name, value in dict(error.headers or {}).items():
        resp.set_header(name, value)
