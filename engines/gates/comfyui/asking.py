"""What the gate's routes read of a request: whose it is, its query, its small JSON bodies."""

from typing import Annotated
from urllib.parse import parse_qsl

import msgspec
from falcon.asgi import Request

from core.caller import CALLER, HANDLE, is_handle, is_mark
from core.errors import UsageError

DIRECT = "direct"
"""The caller who has the key and sends no mark: an operator, or the daemon."""
MAX_BODY_BYTES = 16 << 20


class CallerInvalid(UsageError):
    """The caller's mark is none."""

    code = "caller_invalid"


class RequestInvalid(UsageError):
    """The request cannot be understood, or could be understood in two ways."""

    code = "invalid_request"


def read_caller(req: Request) -> str:
    """Raises: CallerInvalid."""
    given = [value for name, value in req.scope["headers"] if name == CALLER.encode()]
    if not given:
        return DIRECT
    mark = str(given[0], "latin-1")
    if len(given) > 1 or not is_mark(mark):
        raise CallerInvalid("the caller's mark is not one")
    return mark


def read_handle(req: Request) -> str:
    """The gateway's id of the request; empty when there is none."""
    handle: str = req.get_header(HANDLE) or ""
    return handle if is_handle(handle) else ""


def read_query(req: Request, known: frozenset[str]) -> dict[str, str]:
    """The query's parameters. Raises: RequestInvalid for an unknown one, and for one that is there twice."""
    found: dict[str, str] = {}
    raw = req.scope["query_string"].decode("latin-1")
    try:
        pairs = parse_qsl(raw, keep_blank_values=True, strict_parsing=bool(raw), errors="strict", max_num_fields=32)
    except (ValueError, UnicodeError):
        raise RequestInvalid("the query cannot be read") from None
    for name, value in pairs:
        if name in found or name not in known:
            raise RequestInvalid(f"the parameter {name[:40]!r} is unknown here, or there twice")
        found[name] = value
    return found


def read_count(query: dict[str, str], name: str, default: int) -> int:
    """Raises: RequestInvalid."""
    text = query.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.lstrip("-").isdigit() and len(text) < 10):
        raise RequestInvalid(f"{name} must be a whole number")
    return int(text)


async def read_bytes(req: Request) -> bytes:
    """The body. Raises: RequestInvalid when it is too large."""
    body = bytes(await req.stream.read(MAX_BODY_BYTES + 1))
    if len(body) > MAX_BODY_BYTES:
        raise RequestInvalid(f"the body has more than {MAX_BODY_BYTES >> 20} MiB")
    return body


class QueueOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`POST /queue`. `clear` would wipe everybody's, so it is no field of ours."""

    delete: Annotated[list[str], msgspec.Meta(max_length=1000)]


class InterruptOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`POST /interrupt`. Without an id: whatever of the caller's runs."""

    prompt_id: str = ""


async def read_order(req: Request, kind: "type[QueueOrder] | type[InterruptOrder]") -> QueueOrder | InterruptOrder:
    """A small JSON body. Raises: RequestInvalid."""
    body = await read_bytes(req)
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise RequestInvalid(f"the request is not valid: {error}") from None
