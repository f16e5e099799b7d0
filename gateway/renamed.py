"""The answer of an engine that knows the model by another name than the client: one value is another, all else is not.

Also how a server without our relay is served: there the two names may be the same.
"""

from falcon.asgi import Request, Response

from core.api import RouteTarget
from core.http.plan import RelayOutcome
from core.http.trim import Trimmer
from gateway.edited import EditedAnswer, StreamEdit
from gateway.ending import RequestRecord
from gateway.relay import InferencePlan
from gateway.rewrite import StreamRenamer, rename_model
from gateway.table import ModelEntry
from gateway.usage.asking import USAGE_EVENTS, ask_for_usage, is_asked


class Renaming:
    """The request under the engine's name, its answer under the client's."""

    media_type = ""

    def __init__(self, record: RequestRecord, entry: ModelEntry, asked: str, body: bytes, path: bytes) -> None:
        self._record = record
        self._entry = entry
        self._asked = asked
        self._body = body
        self._path = path

    def request(self, target: RouteTarget) -> tuple[bytes, bytes]:
        name = self._entry.upstream_name(target)
        body = self._body if name == self._asked else rename_model(self._body, name)
        if is_asked(self._record, target):
            body = ask_for_usage(body, has_options=self._record.has_stream_options)
        return self._path, body

    def whole(self, target: RouteTarget, status: int, body: bytes) -> bytes:
        # A backend says more than it was asked for: which version of the model has answered.
        is_same = not target.backend and self._entry.upstream_name(target) == self._asked
        return body if is_same else rename_model(body, self._asked)

    def stream(self, target: RouteTarget) -> StreamEdit:
        renamer = StreamRenamer(self._asked)
        return _WithoutUsage(renamer) if is_asked(self._record, target) else renamer

    def error_event(self, error: Exception) -> bytes:
        # The blank line ends an event that broke off in its middle; where none did, it means nothing.
        return b"\n\n" + InferencePlan.error_event


class _WithoutUsage:
    """A stream of which the client did not ask for the usage, and we did."""

    def __init__(self, edit: StreamEdit) -> None:
        self._trimmer = Trimmer(USAGE_EVENTS, is_chunked=False)
        self._edit = edit

    def feed(self, data: bytes) -> bytes:
        return self._edit.feed(self._trimmer.feed(data))

    def finish(self) -> bytes:
        return self._edit.feed(self._trimmer.finish()) + self._edit.finish()


class RenamedAnswer:
    """One request answered this way."""

    def __init__(self, plan: InferencePlan, entry: ModelEntry, asked: str, body: bytes) -> None:
        self._plan = plan
        self._entry = entry
        self._asked = asked
        self._body = body

    async def respond(self, req: Request, resp: Response, path: bytes) -> RelayOutcome | None:
        """An outcome says why no target answers. Raises: ApiError."""
        edit = Renaming(self._plan.record, self._entry, self._asked, self._body, path)
        return await EditedAnswer(self._plan, edit).respond(req, resp)
