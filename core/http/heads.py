"""Which header fields cross the relay, in each direction, and the heads that result.

Pure. Three kinds stay behind: fields about one connection (hop-by-hop, RFC 9110 7.6.1), fields about the client
that an engine must not see (its credentials, cookies, address, origin), and fields about the engine that a client
must not see. What is not named here crosses untouched, so that new fields work without us.
"""

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
}

_NOT_DOWNSTREAM = _HOP_BY_HOP | {
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


def _named_by_connection(headers: Headers) -> frozenset[bytes]:
    """Further fields that the sender declared to be about this connection."""
    values = [value for name, value in headers if name == b"connection"]
    if not values:
        return frozenset()
    tokens = {token.strip().lower() for value in values for token in value.split(b",")}
    # Nobody may have a length or a type dropped that way.
    return frozenset(tokens - {b"", b"close", b"keep-alive", b"content-length", b"content-type"})


def _lines(headers: Headers, dropped: frozenset[bytes]) -> list[bytes]:
    named = _named_by_connection(headers)
    if named:
        dropped = dropped | named
    return [b"%b: %b\r\n" % field for field in headers if field[0] not in dropped]


def request_head(method: bytes, path: bytes, headers: Headers, *, fixed: bytes, length: int) -> bytes:
    """The head of a request to an upstream.

    `fixed` is what is said to that upstream each time: its Host and its key, as ready lines.
    """
    lines = _lines(headers, _NOT_UPSTREAM)
    if length or method in (b"POST", b"PUT", b"PATCH"):
        lines.append(b"content-length: %d\r\n" % length)
    return b"%b %b HTTP/1.1\r\n%b%b\r\n" % (method, path, fixed, b"".join(lines))


def response_head(status: int, headers: Headers, *, added: bytes, chunked: bool, close: bool) -> bytes:
    """The head of a relayed response. `added` are ready lines; `chunked` says that the body is sent so."""
    lines = _lines(headers, _NOT_DOWNSTREAM)
    framing = b"transfer-encoding: chunked\r\n" if chunked else b""
    ending = b"connection: close\r\n\r\n" if close else b"\r\n"
    return b"%b%b%b%b%b" % (STATUS_LINES[status], b"".join(lines), added, framing, ending)


def downstream_fields(headers: Headers) -> Headers:
    """What of a response's fields a client may see, for an application that writes the head itself."""
    dropped = _NOT_DOWNSTREAM | _named_by_connection(headers)
    return [field for field in headers if field[0] not in dropped]


def without_length(headers: Headers) -> Headers:
    """For a body that will be sent in another framing than the one it came in."""
    return [field for field in headers if field[0] != b"content-length"]


def is_event_stream(headers: Headers) -> bool:
    """Whether the body is server-sent events."""
    for name, value in headers:
        if name == b"content-type":
            return value[:17].lower() == b"text/event-stream"
    return False
