"""Recognises a message whose head is that of the last one on its connection, but for its Content-Length.

A client that keeps its connection says the same head again and again, and so does an engine; parsing them anew is
half of what a short request costs us. A message of so many bytes with this head can state one length only, so the head
that it must have is made and compared, byte for byte: llhttp has judged the very same bytes before, but for digits, and
a recalled head means what the parsed one meant. A head with anything that could change the framing (a coding, an
expectation, an upgrade, `Connection: close`) is never remembered.
"""

from core.http.asgi import Headers
from core.http.heads import response_head

_FIELD = b"\r\ncontent-length:"
_NEVER = frozenset({b"transfer-encoding", b"expect", b"upgrade", b"connection"})
_KEEP_ALIVE = b"keep-alive"


class _LengthPattern:
    """A head with a hole where the digits of its length stood."""

    __slots__ = ("_prefix", "_size", "_suffix", "_width")

    def __init__(self, prefix: bytes, suffix: bytes) -> None:
        self._prefix = prefix
        self._suffix = suffix
        self._size = len(prefix) + len(suffix)
        self._width = 1
        """Of the digits, as it was last."""

    def match(self, data: bytes) -> tuple[bytes, bytes] | None:
        """Digits and body when `data` is one whole message with this head; None when it is anything else."""
        left = len(data) - self._size
        digits = b"%d" % (left - self._width)
        if len(digits) != self._width:
            self._width = _width_of(left)
            digits = b"%d" % (left - self._width)
            if len(digits) != self._width:
                return None  # of eleven bytes neither one nor two can state how many the others are
        # Compared as a slice: it costs half of `startswith`.
        head = self._prefix + digits + self._suffix
        begin = len(head)
        return (digits, data[begin:]) if data[:begin] == head else None


class RememberedRequest(_LengthPattern):
    """The head of a request."""

    __slots__ = ("_at", "_headers", "asked", "method", "note", "path", "query", "upstream_lines")

    def __init__(self, prefix: bytes, suffix: bytes, headers: Headers) -> None:
        super().__init__(prefix, suffix)
        self._headers = headers
        self._at = [name for name, _ in headers].index(b"content-length")
        self.method = b""
        self.path = b""
        self.query = b""
        self.upstream_lines = b""
        """What of it goes to an upstream, once somebody has made it."""
        self.asked: tuple[object, bytes, bytes] = (None, b"", b"")
        """Who was asked last, for which path, and the head that this took, up to its length's digits."""
        self.note: object = None
        """What the application has concluded from this head; whether that still holds is its own affair."""

    def headers(self, digits: bytes) -> Headers:
        headers = self._headers.copy()
        headers[self._at] = (b"content-length", digits)
        return headers


class RememberedResponse(_LengthPattern):
    """The head of a response, and of the one that is passed on for it."""

    __slots__ = ("after", "before", "status")

    def __init__(self, prefix: bytes, suffix: bytes, status: int, headers: Headers) -> None:
        super().__init__(prefix, suffix)
        self.status = status
        made, _ = response_head(status, headers, added=b"", decoded=False, bodiless=False, close=False)
        begin = made.index(b"content-length: ") + len(b"content-length: ")
        self.before = made[:begin]
        """What is passed on of it, up to the length's digits."""
        self.after = made[made.index(b"\r\n", begin) : -2]
        """Likewise after them; lines may be added, and the empty one is."""


def remember_request(data: bytes, headers: Headers, body_size: int) -> RememberedRequest | None:
    """Take apart the head of `data`, a whole request that was parsed; None when it is not to be recalled."""
    found = _split_at_length(data, headers, body_size)
    return RememberedRequest(*found, headers) if found else None


def remember_response(data: bytes, status: int, headers: Headers, body_size: int) -> RememberedResponse | None:
    """As `remember_request`; only of a plain success, whose status decides nothing."""
    found = _split_at_length(data, headers, body_size) if status == 200 else None
    return RememberedResponse(*found, status, headers) if found else None


def _width_of(left: int) -> int:
    """How many of `left` bytes are digits that state how many the others are."""
    width = 1
    while len(b"%d" % (left - width)) > width:
        width += 1
    return width


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
