"""The headers of a request that the gateway looks at, read in one pass over the ASGI scope.

Reading them one by one through the framework would cost more than the whole authentication.
"""

from core.http.asgi import Scope
from gateway.origin import BrowserFacts

_NAMES = frozenset(
    (
        b"authorization", b"x-api-key", b"x-request-id", b"content-type", b"content-encoding",
        b"host", b"origin", b"sec-fetch-site",
    )
)  # fmt: skip


class Incoming:
    """Header values as bytes; of a repeated header the first counts."""

    __slots__ = ("_found", "peer")

    def __init__(self, scope: Scope) -> None:
        headers = scope["headers"]
        client = scope.get("client")
        self._found: dict[bytes, bytes] = {}
        self.peer = str(client[0]) if isinstance(client, (tuple, list)) and client and client[0] else ""
        """The other end's address; empty on a unix socket."""
        if isinstance(headers, (list, tuple)):
            for name, value in headers:
                if name in _NAMES:
                    self._found.setdefault(name, value)

    def get(self, name: bytes) -> bytes:
        """The value, or nothing."""
        return self._found.get(name, b"")

    def text(self, name: bytes) -> str:
        return self._found.get(name, b"").decode("latin-1")

    def browser_facts(self) -> BrowserFacts:
        return BrowserFacts(self.text(b"host"), self.text(b"origin"), self.text(b"sec-fetch-site"))
