"""Which web pages may use `/v1/*` from a browser: those of `server.corsOrigins`, and by default none.

A page of another origin cannot read an answer unless the answer says so. Nothing of `/gateway/*` ever does, and
credentials of the browser's own (cookies) are never asked for: a page has to bring a key. Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from core.http.asgi import Headers

_ANY = b"*"
_EXPOSED = b"retry-after, x-request-id, x-llmgw-target"
_MAX_ASKED_BYTES = 2048
_TOKEN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_, ")


@dataclass(frozen=True, slots=True)
class Cors:
    """The rule."""

    origins: frozenset[bytes] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.origins)

    def lines(self, path: bytes, headers: Headers) -> bytes:
        """What to add to every answer to this request, as ready lines; empty: nothing."""
        allowed = self._allowed(path, headers)
        if not allowed:
            return b""
        return b"access-control-allow-origin: %b\r\nvary: origin\r\naccess-control-expose-headers: %b\r\n" % (
            allowed,
            _EXPOSED,
        )

    def preflight(self, method: bytes, path: bytes, headers: Headers) -> bytes:
        """More lines for a browser that asks beforehand; empty: it is no such question, or the origin is not ours."""
        asked_method, asked_fields = _first(headers, b"access-control-request-method"), b""
        if method != b"OPTIONS" or not asked_method or not self._allowed(path, headers):
            return b""
        asked_fields = _first(headers, b"access-control-request-headers")
        if len(asked_fields) > _MAX_ASKED_BYTES or not _TOKEN.issuperset(asked_fields):
            asked_fields = b""
        lines = b"access-control-allow-methods: GET, POST, OPTIONS\r\naccess-control-max-age: 600\r\n"
        return lines + (b"access-control-allow-headers: %b\r\n" % asked_fields if asked_fields else b"")

    def _allowed(self, path: bytes, headers: Headers) -> bytes:
        origin = _first(headers, b"origin")
        if not origin or not path.startswith(b"/v1/"):
            return b""
        if _ANY in self.origins:
            return _ANY
        return origin if origin.lower() in self.origins else b""


def compile_cors(origins: Sequence[str]) -> Cors:
    return Cors(frozenset(origin.strip().lower().encode("latin-1", "replace") for origin in origins))


def _first(headers: Headers, wanted: bytes) -> bytes:
    for name, value in headers:
        if name == wanted:
            return value
    return b""
