"""What every request passes before a route of a gate sees it: the key, and the plain spelling of its path.

The key is compared in constant time. Then anything but a plain path is turned away: no escapes, no empty or dotted
segments, no parameters. So the routes can be a short list that is compared letter by letter, and a forbidden path has
no other spelling that an engine behind us would understand and we would not.
"""

import re

from falcon.asgi import Request, Response

from core.secret import Secret
from engines.gates.answers import write_error

HEALTH = "/health"
_PLAIN = re.compile(rb"/|(/[A-Za-z0-9_@:+,=~-][A-Za-z0-9._@:+,=~-]*)+")


class Door:
    """Falcon middleware. `prefix`: what may stand before every path, and means nothing (`/api`)."""

    def __init__(self, key: Secret, *, prefix: str = "") -> None:
        self._key = key
        self._prefix = f"{prefix}/" if prefix else ""

    async def process_request(self, req: Request, resp: Response) -> None:
        raw = req.scope["raw_path"]
        if raw != HEALTH.encode() and not self._key.matches(_given_key(req)):
            resp.set_header("WWW-Authenticate", "Bearer")
            write_error(resp, 401, "unauthorized", "This needs the runtime's key.")
            resp.complete = True
        elif not is_plain(raw):
            write_error(resp, 404, "not_found", "There is nothing here.")
            resp.complete = True
        elif self._prefix and req.path.startswith(self._prefix):
            req.path = req.path[len(self._prefix) - 1 :]


def is_plain(raw_path: bytes) -> bool:
    """Whether a path has one spelling only. Pure."""
    return len(raw_path) <= 1024 and _PLAIN.fullmatch(raw_path) is not None


def _given_key(req: Request) -> str:
    """As a Bearer token, or as `x-api-key`. What is no text cannot be the key."""
    scheme, _, token = (req.get_header("Authorization") or "").partition(" ")
    given: str = token.strip() if scheme.lower() == "bearer" else ""
    given = given or req.get_header("X-Api-Key") or ""
    return given.encode("utf-8", "replace").decode()
