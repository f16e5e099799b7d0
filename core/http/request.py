"""What a request's head means: which are refused, how long the body is, what the application is told.

Pure. httptools (llhttp) has checked the syntax before; this file decides what syntax alone does not.
"""

from typing import NamedTuple
from urllib.parse import unquote

from core.http.asgi import VERSIONS, Headers, Scope
from core.http.limits import HttpLimits
from core.http.refusal import (
    BAD_FRAMING,
    BAD_TARGET,
    BODY_TOO_LARGE,
    HEAD_TOO_LARGE,
    NO_HOST,
    NO_TUNNELS,
    UNKNOWN_CODING,
    UNKNOWN_EXPECTATION,
    UNKNOWN_VERSION,
    Refusal,
)

_TELLING = frozenset({b"host", b"content-length", b"transfer-encoding", b"expect"})


class HeadFacts(NamedTuple):
    """What the server itself must know of a head that it takes."""

    length: int | None
    """Of the body; None when it is chunked."""
    expects_continue: bool


_PLAIN = HeadFacts(0, False)


def read_head(method: bytes, version: str, headers: Headers, limits: HttpLimits) -> HeadFacts | Refusal:
    """Decide whether a syntactically valid head is taken."""
    if len(headers) > limits.head_fields:
        return HEAD_TOO_LARGE
    if version not in ("1.1", "1.0"):
        return UNKNOWN_VERSION
    if method == b"CONNECT":
        return NO_TUNNELS
    hosts, length, codings, expectation = 0, None, None, None
    for name, value in headers:
        if name not in _TELLING:
            continue
        if name == b"host":
            hosts += 1
        elif name == b"content-length":
            if length is not None:
                return BAD_FRAMING
            length = value
        elif name == b"transfer-encoding":
            codings = value if codings is None else codings + b"," + value
        else:
            expectation = value
    if hosts != 1 and (version == "1.1" or hosts > 1):
        return NO_HOST
    if length is None and codings is None and expectation is None:
        return _PLAIN
    return _read_framing(version, length, codings, expectation, limits)


def _read_framing(
    version: str, length: bytes | None, codings: bytes | None, expectation: bytes | None, limits: HttpLimits
) -> HeadFacts | Refusal:
    if codings is not None:
        # Both lengths at once, or a coding in HTTP/1.0, is how one request is smuggled inside another.
        if length is not None or version == "1.0":
            return BAD_FRAMING
        if codings.strip().lower() != b"chunked":
            return UNKNOWN_CODING
    if length is not None and not length.isdigit():
        return BAD_FRAMING
    size = None if codings is not None else int(length or b"0")
    if size is not None and size > limits.body_bytes:
        return BODY_TOO_LARGE
    # An HTTP/1.0 client cannot mean it (RFC 9110 10.1.1).
    if expectation is None or version == "1.0":
        return HeadFacts(size, False)
    if expectation.strip().lower() != b"100-continue":
        return UNKNOWN_EXPECTATION
    return HeadFacts(size, size != 0)


def is_form(headers: Headers) -> bool:
    """Whether the body is a form with parts, such as files come in."""
    return any(
        name == b"content-type" and value[:20].lower() == b"multipart/form-data;"[:20] for name, value in headers
    )


def offers_websocket(method: bytes, version: str, headers: Headers) -> bool:
    """Whether a request could become a websocket; whether it says so rightly is judged when it does."""
    if method != b"GET" or version != "1.1":
        return False
    fields = {name: value for name, value in headers}
    is_bare = b"content-length" not in fields and b"transfer-encoding" not in fields
    return is_bare and fields.get(b"upgrade", b"").strip().lower() == b"websocket"


def split_target(target: bytes) -> tuple[bytes, bytes] | Refusal:
    """Path and query of a request target in origin, absolute or asterisk form."""
    if not target.startswith(b"/"):
        scheme, separator, rest = target.partition(b"://")
        if target == b"*":
            return b"*", b""
        if not separator or scheme.lower() not in (b"http", b"https"):
            return BAD_TARGET
        authority_end = min((i for i in (rest.find(b"/"), rest.find(b"?")) if i >= 0), default=len(rest))
        target = rest[authority_end:] if rest[authority_end:].startswith(b"/") else b"/" + rest[authority_end:]
    if b"#" in target:
        return BAD_TARGET
    path, _, query = target.partition(b"?")
    return path, query


def without_upgrade(method: bytes, target: bytes, version: str, headers: Headers) -> bytes:
    """The head again, as if no upgrade had been offered: declining is done by not mentioning it."""
    lines = [b"%b %b HTTP/%b\r\n" % (method, target, version.encode())]
    for name, value in headers:
        if name in (b"upgrade", b"http2-settings"):
            continue
        if name == b"connection":
            dropped = (b"upgrade", b"http2-settings", b"")
            kept = [token for token in (t.strip() for t in value.split(b",")) if token.lower() not in dropped]
            if not kept:
                continue
            value = b", ".join(kept)
        lines.append(b"%b: %b\r\n" % (name, value))
    lines.append(b"\r\n")
    return b"".join(lines)


def build_scope(method: bytes, path: bytes, query: bytes, version: str, headers: Headers) -> Scope:
    """The ASGI scope, less what the connection adds (`client`, `server`, `extensions`)."""
    text = path.decode("latin-1")
    return {
        "type": "http",
        "asgi": VERSIONS,
        "http_version": version,
        "method": method.decode("ascii"),
        "scheme": "http",
        "path": unquote(text) if "%" in text else text,
        "raw_path": path,
        "query_string": query,
        "root_path": "",
        "headers": headers,
    }
