"""`/v1/usage`: the workers' reports of what requests cost, and what was used."""

import falcon
import falcon.asgi
import msgspec

from core.errors import UsageError
from core.usage import DIMENSIONS, UsageAccepted, UsageReport
from daemon.local_api.access import Role
from daemon.local_api.body import read_body
from daemon.usage.ledger import Ledger

NO_KEY = "-"
"""How a question names the requests that came without a key."""


class Usage:
    """Reports come in by POST, and are answered once they are kept; GET lists sums."""

    role = Role.GATEWAY

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def on_post(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        report = await read_body(req, UsageReport)
        await self._ledger.take(report)
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode(UsageAccepted(sequence=report.sequence))

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        key = req.get_param("key") or None
        found = await self._ledger.list(
            first=req.get_param("from") or "",
            last=req.get_param("to") or "",
            key="" if key == NO_KEY else key,
            model=req.get_param("model") or "",
            by=read_dimensions(req.get_param("by") or ""),
        )
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode(found)


def read_dimensions(text: str) -> tuple[str, ...]:
    """`key,day` as names of dimensions, in their own order; nothing is all of them. Raises: UsageError."""
    asked = {name.strip() for name in text.split(",") if name.strip()}
    if asked - set(DIMENSIONS):
        raise UsageError(
            f"usage cannot be listed by {sorted(asked - set(DIMENSIONS))[0][:50]!r}", hint=f"by {', '.join(DIMENSIONS)}"
        )
    return tuple(name for name in DIMENSIONS if name in asked or not asked)
