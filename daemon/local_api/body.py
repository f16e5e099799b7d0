"""Reading a request's JSON body into a wire message."""

from typing import TypeVar

import falcon.asgi
import msgspec

from core.errors import UsageError
from core.message import Message

M = TypeVar("M", bound=Message)

_MAX_BODY_BYTES = 1 << 20


async def read_body(req: falcon.asgi.Request, kind: type[M]) -> M:
    """The message; an empty body is all defaults. Raises: UsageError."""
    body = await req.stream.read(_MAX_BODY_BYTES)
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UsageError(f"the request's body is not understood: {error}") from error
