"""Recognises a request whose head is that of the last one on its connection, but for its Content-Length.

A client that keeps its connection says the same head again and again; parsing it anew is a third of what a request
costs us. The comparison is exact, byte for byte on both sides of the length's digits, and llhttp has judged the very
same bytes before, so a recalled head means what the parsed one meant. A head with anything that could change the
framing (a coding, an expectation, another version, `Connection: close`) is never remembered.
"""

from core.http.asgi import Headers

_FIELD = b"\r\ncontent-length:"
_MAX_DIGITS = 9
_NEVER = frozenset({b"transfer-encoding", b"expect", b"upgrade", b"connection"})
_KEEP_ALIVE = b"keep-alive"


class RememberedHead:
    """One head, taken apart at its length."""

    __slots__ = ("_at", "_headers", "_prefix", "_suffix", "method", "path", "query", "upstream_lines")

    def __init__(self, prefix: bytes, suffix: bytes, headers: Headers, at: int) -> None:
        self._prefix = prefix
        self._suffix = suffix
        self._headers = headers
        self._at = at
        self.method = b""
        self.path = b""
        self.query = b""
        self.upstream_lines = b""
        """What of it goes to an upstream, once somebody has made it."""

    def recall(self, data: bytes, limit_bytes: int) -> tuple[Headers, bytes] | None:
        """Fields and body when `data` is one whole request with this head; None when it is anything else."""
        prefix, suffix = self._prefix, self._suffix
        if not data.startswith(prefix):
            return None
        begin = len(prefix)
        end = data.find(b"\r", begin, begin + _MAX_DIGITS + 1)
        digits = data[begin:end]
        if end < 0 or not digits.isdigit() or not data.startswith(suffix, end):
            return None
        start, length = end + len(suffix), int(digits)
        if len(data) != start + length or length > limit_bytes:
            return None
        headers = self._headers.copy()
        headers[self._at] = (b"content-length", digits)
        return headers, data[start:]


def remember_head(data: bytes, headers: Headers, body_size: int) -> RememberedHead | None:
    """Take apart the head of `data`, a whole request that was parsed; None when it is not to be recalled.

    `headers` are its parsed fields, `body_size` is the length of its body.
    """
    end = data.find(b"\r\n\r\n")
    if end < 0 or len(data) != end + 4 + body_size:
        return None
    at = -1
    for number, (name, value) in enumerate(headers):
        if name == b"content-length":
            at = number
        elif name in _NEVER and not (name == b"connection" and value.lower() == _KEEP_ALIVE):
            return None
    digits = headers[at][1] if at >= 0 else b""
    field = data[: end + 2].lower().find(_FIELD)
    if at < 0 or field < 0:
        return None
    begin = data.find(digits, field + len(_FIELD), end)
    after = begin + len(digits)
    if begin < 0 or data[field + len(_FIELD) : begin].strip(b" \t") or data[after : after + 2] != b"\r\n":
        return None
    return RememberedHead(data[:begin], data[after : end + 4], headers, at)
