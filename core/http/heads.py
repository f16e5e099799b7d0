"""Which header fields cross the relay, in each direction, and the heads that result.

Pure. Three kinds stay behind: fields about one connection (hop-by-hop, RFC 9110 7.6.1), fields about the client
that an engine must not see (its credentials, cookies, address, origin), and fields about the engine that a client
must not see. What is not named here crosses untouched, so that new fields work without us.
"""

from enum import StrEnum

from core.caller import CALLER, HANDLE
from core.http.asgi import Headers
from core.http.status import STATUS_LINES

_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"http2-settings",
    }
)

_NOT_UPSTREAM = _HOP_BY_HOP | {
    # Said anew for the upstream.
    b"host",
    b"content-length",
    b"expect",
    # The client's credentials are for us alone; the target has its own.
    b"authorization",
    b"x-api-key",
    b"api-key",
    b"cookie",
    # An engine that compresses hides the usage at the end of its answer from us.
    b"accept-encoding",
    # Who and where the client is, and what its browser thinks of it: engines apply origin rules of their own.
    b"forwarded",
    b"via",
    b"x-real-ip",
    b"origin",
    b"referer",
    b"sec-fetch-site",
    b"sec-fetch-mode",
    b"sec-fetch-dest",
    b"sec-fetch-user",
    b"x-forwarded-for",
    b"x-forwarded-host",
    b"x-forwarded-proto",
    b"x-forwarded-port",
    b"x-request-id",
    # Said by us alone (`core/caller.py`): whoever could forge it would read another's work.
    CALLER.encode(),
    HANDLE.encode(),
}

_NOT_DOWNSTREAM = _HOP_BY_HOP | {
    # Said anew: `core.http.date`.
    b"date",
    # What the engine is.
    b"server",
    b"via",
    b"x-powered-by",
    b"alt-svc",
    # State and credentials between the engine and us.
    b"set-cookie",
    b"www-authenticate",
    # Whose page may read the answer is the gateway's decision.
    b"access-control-allow-origin",
    b"access-control-allow-credentials",
    b"access-control-allow-headers",
    b"access-control-allow-methods",
    b"access-control-expose-headers",
    b"access-control-max-age",
    # The gateway's own fields; two answers to one question are none.
    b"x-request-id",
    b"x-llmgw-target",
}


_TO_FOREIGNERS = frozenset(
    {
        b"content-type",
        b"accept",
        b"idempotency-key",
        b"openai-beta",
        b"anthropic-version",
        b"anthropic-beta",
    }
)
"""The only fields of a request that somebody else's service gets: those that say what is asked, and not who asks."""

_FROM_FOREIGNERS = frozenset(
    {
        b"content-type",
        b"content-encoding",
        b"content-length",
        b"content-disposition",
        b"transfer-encoding",
        b"connection",
        b"cache-control",
        b"retry-after",
    }
)
"""The only fields of its answer that a client gets: the others are about its service, and our account with it."""

_NAMES_NOTHING = frozenset({b"keep-alive,", b"close,", b"upgrade,"})
"""The usual values of Connection, each with the comma that joins several."""

_HAVE_BODIES = frozenset({b"POST", b"PUT", b"PATCH"})
"""Their length is stated even when it is zero (RFC 9110 8.6)."""

_CLOSING = b"connection: close\r\n\r\n"


class Delimiter(StrEnum):
    """What tells the client where a relayed body ends."""

    LENGTH = "length"
    """Its length, or that there is none."""
    CHUNKS = "chunks"
    CLOSE = "close"
    """The end of the connection; only a reset tells it from a broken one."""


def upstream_lines(headers: Headers) -> bytes:
    """What of a request's fields an upstream may see, as ready lines."""
    connection = b""
    lines = []
    for field in headers:
        if field[0] not in _NOT_UPSTREAM:
            lines.append(b"%b: %b\r\n" % field)
        elif field[0] == b"connection":
            connection += field[1] + b","
    if connection and connection.lower() not in _NAMES_NOTHING:
        return upstream_lines(_without_named(headers, connection))
    return b"".join(lines)


def foreign_lines(lines: bytes) -> bytes:
    """What of ready lines somebody else's service may see."""
    return b"".join(b"%b\r\n" % line for line in lines.split(b"\r\n") if line.partition(b":")[0] in _TO_FOREIGNERS)


def foreign_fields(headers: Headers) -> Headers:
    """What of its answer's fields a client may see."""
    return [field for field in headers if field[0] in _FROM_FOREIGNERS]


def request_head(method: bytes, path: bytes, lines: bytes, *, fixed: bytes, length: int) -> bytes:
    """The head of a request to an upstream.

    `lines` are the client's (`upstream_lines`), `fixed` those that this upstream is told each time: its Host and its
    key.
    """
    if length or method in _HAVE_BODIES:
        return b"%b%d\r\n\r\n" % (head_to_length(method, path, lines, fixed=fixed), length)
    return b"%b %b HTTP/1.1\r\n%b%b\r\n" % (method, path, fixed, lines)


def head_to_length(method: bytes, path: bytes, lines: bytes, *, fixed: bytes) -> bytes:
    """The same of a request with a body, as far as it is alike for every length."""
    return b"%b %b HTTP/1.1\r\n%b%bcontent-length: " % (method, path, fixed, lines)


def response_head(  # noqa: PLR0913 - what a head is made of
    status: int, headers: Headers, *, added: bytes, decoded: bool, bodiless: bool, close: bool
) -> tuple[bytes, Delimiter]:
    """The head of a relayed response, and how its body will end.

    `added` are ready lines. `decoded`: the body is passed on without chunk framing (to an HTTP/1.0 client).
    `bodiless`: there is no body, whatever the fields say of the one that there could be. `close`: the connection ends
    after this response; it does so too where the body has no other end.
    """
    connection = b""
    delimiter = Delimiter.LENGTH if bodiless else Delimiter.CLOSE
    lines = [STATUS_LINES[status]]
    for field in headers:
        name = field[0]
        if name not in _NOT_DOWNSTREAM:
            lines.append(b"%b: %b\r\n" % field)
            if name == b"content-length":
                delimiter = Delimiter.LENGTH
        elif name == b"transfer-encoding":
            if not decoded:
                lines.append(b"transfer-encoding: chunked\r\n")
                delimiter = delimiter if bodiless else Delimiter.CHUNKS
        elif name == b"connection":
            connection += field[1] + b","
    if connection and connection.lower() not in _NAMES_NOTHING:
        kept = _without_named(headers, connection)
        return response_head(status, kept, added=added, decoded=decoded, bodiless=bodiless, close=close)
    lines.append(added)
    lines.append(_CLOSING if close or delimiter is Delimiter.CLOSE else b"\r\n")
    return b"".join(lines), delimiter


def downstream_fields(headers: Headers) -> Headers:
    """What of a response's fields a client may see, for an application that writes the head itself."""
    connection = b",".join(value for name, value in headers if name == b"connection")
    kept = _without_named(headers, connection) if connection else headers
    return [field for field in kept if field[0] not in _NOT_DOWNSTREAM]


def is_event_stream(headers: Headers) -> bool:
    """Whether the body is server-sent events."""
    for name, value in headers:
        if name == b"content-type":
            return value[:17].lower() == b"text/event-stream"
    return False


def _without_named(headers: Headers, connection: bytes) -> Headers:
    """Less the fields that the sender declared to be about this connection, and the declaration.

    Nobody may have the length or the type of a body dropped that way.
    """
    tokens = {token.strip().lower() for token in connection.split(b",")} - {b"content-length", b"content-type"}
    named = tokens - {b"transfer-encoding"} | {b"connection"}
    return [field for field in headers if field[0] not in named]
