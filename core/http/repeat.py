"""Recognises a message whose head is that of the last one on its connection, but for its Content-Length.

A client that keeps its connection says the same head again and again, and so does an engine; parsing them anew is
half of what a short request costs us. The comparison is exact, byte for byte on both sides of the length's digits,
and llhttp has judged the very same bytes before, so a recalled head means what the parsed one meant. A head with
anything that could change the framing (a coding, an expectation, an upgrade, `Connection: close`) is never remembered.
"""

from core.http.asgi import Headers
from core.http.heads import response_head

_FIELD = b"\r\ncontent-length:"
_MAX_DIGITS = 9
_NEVER = frozenset({b"transfer-encoding", b"expect", b"upgrade", b"connection"})
_KEEP_ALIVE = b"keep-alive"


class _LengthPattern:
    """A head with a hole where the digits of its length stood."""

    __slots__ = ("_prefix", "_suffix")

    def __init__(self, prefix: bytes, suffix: bytes) -> None:
        self._prefix = prefix
        self._suffix = suffix

    def match(self, data: bytes) -> tuple[bytes, bytes] | None:
        """Digits and body when `data` is one whole message with this head; None when it is anything else."""
        prefix = self._prefix
        if not data.startswith(prefix):
            return None
        begin = len(prefix)
        end = data.find(b"\r", begin, begin + _MAX_DIGITS + 1)
        digits = data[begin:end]
        if end < 0 or not digits.isdigit() or not data.startswith(self._suffix, end):
            return None
        start = end + len(self._suffix)
        return (digits, data[start:]) if len(data) - start == int(digits) else None


class RememberedRequest(_LengthPattern):
    """The head of a request."""

    __slots__ = ("_at", "_headers", "method", "note", "path", "query", "upstream_lines")

    def __init__(self, prefix: bytes, suffix: bytes, headers: Headers) -> None:
        super().__init__(prefix, suffix)
        self._headers = headers
        self._at = [name for name, _ in headers].index(b"content-length")
        self.method = b""
        self.path = b""
        self.query = b""
        self.upstream_lines = b""
        """What of it goes to an upstream, once somebody has made it."""
        self.note: object = None
        """What the application has concluded from this head; whether that still holds is its own affair."""

    def headers(self, digits: bytes) -> Headers:
        headers = self._headers.copy()
        headers[self._at] = (b"content-length", digits)
        return headers


class RememberedResponse(_LengthPattern):
    """The head of a response, and of the one that is passed on for it."""

    __slots__ = ("_after", "_before", "status")

    def __init__(self, prefix: bytes, suffix: bytes, status: int, headers: Headers) -> None:
        super().__init__(prefix, suffix)
        self.status = status
        made, _ = response_head(status, headers, added=b"", decoded=False, bodiless=False, close=False)
        begin = made.index(b"content-length: ") + len(b"content-length: ")
        self._before = made[:begin]
        self._after = made[made.index(b"\r\n", begin) : -2]

    def head(self, digits: bytes, added: bytes) -> bytes:
        """What is passed on, with these lines added."""
        return b"%b%b%b%b\r\n" % (self._before, digits, self._after, added)


def remember_request(data: bytes, headers: Headers, body_size: int) -> RememberedRequest | None:
    """Take apart the head of `data`, a whole request that was parsed; None when it is not to be recalled."""
    found = _split_at_length(data, headers, body_size)
    return RememberedRequest(*found, headers) if found else None


def remember_response(data: bytes, status: int, headers: Headers, body_size: int) -> RememberedResponse | None:
    """As `remember_request`; only of a plain success, whose status decides nothing."""
    found = _split_at_length(data, headers, body_size) if status == 200 else None
    return RememberedResponse(*found, status, headers) if found else None


def _split_at_length(data: bytes, headers: Headers, body_size: int) -> tuple[bytes, bytes] | None:
    end = data.find(b"\r\n\r\n")
    if end < 0 or len(data) != end + 4 + body_size:
        return None
    digits = b""
    for name, value in headers:
        if name == b"content-length":
            digits = value
        elif name in _NEVER and not (name == b"connection" and value.lower() == _KEEP_ALIVE):
            return None
    field = data[: end + 2].lower().find(_FIELD)
    begin = data.find(digits, field + len(_FIELD), end)
    after = begin + len(digits)
    if not digits or field < 0 or begin < 0 or data[after : after + 2] != b"\r\n":
        return None
    return data[:begin], data[after : end + 4]
