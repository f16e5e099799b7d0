"""The answer of an engine that knows the model by another name than the client: one value is another, all else is not.

Also how a server without our relay is served: there the two names may be the same.
"""

from falcon.asgi import Request, Response

from core.api import RouteTarget
from gateway.edited import EditedAnswer
from gateway.relay import InferencePlan
from gateway.rewrite import StreamRenamer, rename_model
from gateway.table import ModelEntry


class Renaming:
    """The request under the engine's name, its answer under the client's."""

    media_type = ""

    def __init__(self, entry: ModelEntry, asked: str, body: bytes, path: bytes) -> None:
        self._entry = entry
        self._asked = asked
        self._body = body
        self._path = path

    def request(self, target: RouteTarget) -> tuple[bytes, bytes]:
        name = self._entry.upstream_name(target)
        return self._path, self._body if name == self._asked else rename_model(self._body, name)

    def whole(self, target: RouteTarget, status: int, body: bytes) -> bytes:
        return rename_model(body, self._asked)

    def stream(self, target: RouteTarget) -> StreamRenamer:
        return StreamRenamer(self._asked)

    def error_event(self, error: Exception) -> bytes:
        # The blank line ends an event that broke off in its middle; where none did, it means nothing.
        return b"\n\n" + InferencePlan.error_event


class RenamedAnswer:
    """One request answered this way."""

    def __init__(self, plan: InferencePlan, entry: ModelEntry, asked: str, body: bytes) -> None:
        self._plan = plan
        self._entry = entry
        self._asked = asked
        self._body = body

    async def respond(self, req: Request, resp: Response, path: bytes) -> None:
        """Raises: ApiError when no target answers."""
        await EditedAnswer(self._plan, Renaming(self._entry, self._asked, self._body, path)).respond(req, resp)
