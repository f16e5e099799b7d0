"""Letting a request through to the engine: byte for byte by the server's relay, the path in our own words."""

from falcon.asgi import Request, Response

from core.errors import BugError
from core.http.asgi import SPLICE_EXTENSION
from core.http.plan import Attempt, RelayPlan
from core.http.pool import Target
from core.http.stream import ClientStream
from engines.gates.answers import write_error

_BROKEN = (
    b'data: {"error":{"message":"The answer broke off: the engine ended before its end.",'
    b'"type":"server_error","code":"upstream_broken"}}\n\n'
)


class PassingPlan(RelayPlan):
    """One target, asked once: whether to ask again is the gateway's decision."""

    __slots__ = ("_target", "path")
    error_event = _BROKEN

    def __init__(self, target: Target, path: bytes) -> None:
        self._target = target
        self.path = path

    def next_target(self, failed: Attempt | None) -> Target | None:
        return self._target if failed is None else None


class Passage:
    """A path of a generic gate's list. `POST` only: that is how inference is asked for."""

    def __init__(self, target: Target, path: str) -> None:
        self._target = target
        self._path = path.encode("ascii")

    async def on_post(self, req: Request, resp: Response) -> None:
        await pass_on(req, resp, self._target, self._path)


async def pass_on(req: Request, resp: Response, target: Target, path: bytes) -> None:
    """Have the engine answer `path` (with its query). Raises: BugError on a server without a relay."""
    client = req.scope.get("extensions", {}).get(SPLICE_EXTENSION)
    if not isinstance(client, ClientStream):
        raise BugError("a gate is served by llmgw's own server only")
    outcome = await client.relay(PassingPlan(target, path))
    if outcome is not None:
        write_error(resp, 502, "engine_unreachable", "The engine gave no answer.")
