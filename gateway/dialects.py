"""A request that may be answered in two dialects: the target's own, or chat completions in which it is translated.

Pure. A target that speaks the request's dialect gets the client's bytes, with its own name for the model; every
other gets a chat completion. Which one it is may differ from target to target.
"""

from core.api import RouteTarget
from gateway.rewrite import rename_model
from gateway.table import TRANSLATED, ModelEntry, speaks


class TwoDialects:
    """What an edit (`gateway.edited.Edit`) of such a request is made of; `chat` is empty where nobody needs it."""

    media_type = "application/json"

    def __init__(self, path: str, entry: ModelEntry, asked: str, body: bytes, chat: bytes) -> None:
        self._path = path
        self._entry = entry
        self._asked = asked
        self._body = body
        self._chat = chat

    def is_own(self, target: RouteTarget) -> bool:
        return speaks(target, self._path)

    def request(self, target: RouteTarget) -> tuple[bytes, bytes]:
        is_own = self.is_own(target)
        body = self._body if is_own else self._chat
        path = self._path if is_own else TRANSLATED[self._path]
        name = self._entry.upstream_name(target)
        return path.encode("ascii"), body if name == self._asked else rename_model(body, name)


def is_own_everywhere(entry: ModelEntry, path: str) -> bool:
    """Whether every target of the model speaks the dialect itself."""
    return all(speaks(target, path) for target in entry.model.targets)
