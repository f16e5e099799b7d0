"""Requests as nobody should send them, and what each is answered: the whole gateway's manners in one table.

A row is a name, the bytes of one connection, the answers that must come back in this order (a status, and for ours the
code; a `100` may come before any), how many requests the engine may have seen, and whether the connection lives on. The
engine sees what it should and nothing more: a request that is smuggled inside another would be one too many.
"""

import gzip
import json
from typing import NamedTuple

from tests.integration.gateway.harness import CHAT, chat

MODELS = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
CODED = b"Transfer-Encoding: chunked\r\n"
BODY = chat()
SMUGGLED = b"GET /gateway/status HTTP/1.1\r\nHost: x\r\n\r\n"
PNG = "A" * 1_000_000


class Row(NamedTuple):
    """See the module."""

    name: str
    sent: bytes
    answers: tuple[str, ...]
    seen: int = 0
    lives: bool = False


def sized(body: bytes, *fields: bytes, method: bytes = b"POST", path: str = CHAT) -> bytes:
    """A request with a body and its length."""
    head = b"%b %b HTTP/1.1\r\nHost: x\r\n" % (method, path.encode())
    return head + b"".join(field + b"\r\n" for field in (*fields, b"Content-Length: %d" % len(body))) + b"\r\n" + body


def chunked(*parts: bytes, fields: bytes = b"", trailer: bytes = b"") -> bytes:
    data = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    return HEAD + CODED + fields + b"\r\n" + data + b"0\r\n" + trailer + b"\r\n"


def text(body: str | bytes, *fields: bytes) -> bytes:
    """A chat request with this body."""
    return sized(body.encode() if isinstance(body, str) else body, b"Content-Type: application/json", *fields)


def _length(value: bytes) -> bytes:
    return HEAD + b"Content-Length:" + value + b"\r\n\r\n" + BODY


SIZE = b"Content-Length: %d\r\n" % len(BODY)
BAD, FRAMING, JSON = "400 malformed_request", "400 bad_framing", "400 invalid_json"

SMUGGLING = [
    Row("CL.TE", HEAD + b"Content-Length: 4\r\n" + CODED + b"\r\n0\r\n\r\n" + SMUGGLED, (BAD,)),
    Row("TE.CL", HEAD + CODED + b"Content-Length: 4\r\n\r\n" + b"5c\r\n" + SMUGGLED + b"0\r\n\r\n", (BAD,)),
    Row("TE.TE with a fake second", HEAD + CODED + b"Transfer-Encoding: identity\r\n\r\n0\r\n\r\n", (BAD,)),
    Row("TE.TE with a tab", HEAD + b"Transfer-Encoding:\tchunked\r\n" + SIZE + b"\r\n" + BODY, (BAD,)),
    Row("TE of another case with CL", HEAD + b"tRANSFER-eNCODING: CHUNKED\r\n" + SIZE + b"\r\n" + BODY, (BAD,)),
    Row("TE with a blank before its colon", HEAD + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", (BAD,)),
    Row("TE: xchunked", HEAD + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", ("501 unknown_transfer_coding",)),
    Row("TE: chunked, in quotes", HEAD + b'Transfer-Encoding: "chunked"\r\n\r\n', ("501 unknown_transfer_coding",)),
    Row("TE: gzip, chunked", HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n", ("501 unknown_transfer_coding",)),
    Row("TE: chunked, identity", HEAD + b"Transfer-Encoding: chunked, identity\r\n\r\n", (BAD,)),
    Row("TE: empty", HEAD + b"Transfer-Encoding:\r\n" + SIZE + b"\r\n" + BODY, (BAD,)),
    Row("TE: chunked with a vertical tab", HEAD + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n", (BAD,)),
    Row("TE in HTTP/1.0", b"POST /v1/chat/completions HTTP/1.0\r\n" + CODED + b"\r\n0\r\n\r\n", (FRAMING,)),
    Row("two lengths that differ", HEAD + SIZE + b"Content-Length: 1\r\n\r\n" + BODY, (BAD,)),
    Row("two lengths alike", HEAD + SIZE + SIZE + b"\r\n" + BODY, (BAD,)),
    Row("a list of lengths", _length(b" %d, %d" % (len(BODY), len(BODY))), (BAD,)),
    Row("a signed length", _length(b" +%d" % len(BODY)), (BAD,)),
    Row("a negative length", _length(b" -1"), (BAD,)),
    Row("a hexadecimal length", _length(b" 0x10"), (BAD,)),
    Row("a length with an underscore", _length(b" 1_0"), (BAD,)),
    Row("a length in Arabic digits", _length(" ١٠".encode()), (BAD,)),
    Row("no digits", _length(b" "), (BAD,)),
    Row("a length over 64 bits", _length(b" 18446744073709551617"), (BAD,)),
    Row("a blank before the length's colon", HEAD + b"Content-Length : 4\r\n\r\nabcd", (BAD,)),
    Row("a folded length", HEAD + b"Content-Length:\r\n 4\r\n\r\nabcd", (BAD,)),
    Row("a length hidden by a NUL", HEAD + b"X: \x00\r\n" + SIZE + b"\r\n" + BODY, (BAD,)),
    Row("a length hidden by a bare CR", HEAD + b"X: a\rContent-Length: 4\r\n" + SIZE + b"\r\n" + BODY, (BAD,)),
    Row("a length after a bare LF", HEAD + b"X: a\nContent-Length: 4\r\n\r\nabcd", (BAD,)),
    Row("a GET that hides a request", sized(SMUGGLED, method=b"GET", path="/health"), ("200",), lives=True),
    Row("a length that is too short", text(BODY)[:-1] + b"}" + b"\r\n" + MODELS, ("200", "200"), 1, lives=True),
    Row("what follows a body is the next request", text(BODY) + b"smuggled\r\n\r\n", ("200", BAD), 1),
    Row("h2c with a smuggled body", HEAD + b"Connection: Upgrade\r\nUpgrade: h2c\r\n" + SIZE + b"\r\n" + BODY, ("200",),
        1, lives=True),
    Row("a connection that names the length", text(BODY, b"Connection: content-length"), ("200",), 1, lives=True),
]  # fmt: skip

CHUNKS = [
    Row("two chunks", chunked(BODY[:9], BODY[9:]), ("200",), 1, lives=True),
    Row("byte by byte", chunked(*(bytes([byte]) for byte in BODY)), ("200",), 1, lives=True),
    Row("no chunks", chunked(), (JSON,), lives=True),
    Row("an extension", HEAD + CODED + b"\r\n%x;a=b;c=\"d\"\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY), ("200",), 1, True),
    Row("an extension with a bare LF", HEAD + CODED + b"\r\n4;a\nbcd\r\n0\r\n\r\n", (BAD,)),
    Row("an extension of 100 KiB", HEAD + CODED + b"\r\n4;" + b"a" * 100_000 + b"\r\nabcd\r\n0\r\n\r\n",
        (JSON,), 0, True),
    Row("a chunk of 2^64", HEAD + CODED + b"\r\n10000000000000000\r\n", (BAD,)),
    Row("a chunk of 2^63", HEAD + CODED + b"\r\n8000000000000000\r\nabc", ("408 request_timed_out",)),
    Row("a chunk's size that never ends", HEAD + CODED + b"\r\n" + b"0" * 5000, ("408 request_timed_out",)),
    Row("a negative chunk", HEAD + CODED + b"\r\n-4\r\nabcd\r\n0\r\n\r\n", (BAD,)),
    Row("a chunk with 0x", HEAD + CODED + b"\r\n0x4\r\nabcd\r\n0\r\n\r\n", (BAD,)),
    Row("a chunk ended by LF", HEAD + CODED + b"\r\n4\nabcd\r\n0\r\n\r\n", (BAD,)),
    Row("a chunk that is longer than it says", HEAD + CODED + b"\r\n3\r\nabcd\r\n0\r\n\r\n", (BAD,)),
    Row("a trailer", chunked(BODY, trailer=b"X-Sum: 1\r\n"), ("200",), 1, lives=True),
    Row("a trailer with a key", chunked(BODY, trailer=b"Authorization: Bearer x\r\n"), ("200",), 1, lives=True),
    Row("a trailer with a length", chunked(BODY, trailer=b"Content-Length: 4\r\n") + MODELS, (BAD,)),
    Row("a trailer without a colon", chunked(BODY, trailer=b"nonsense\r\n"), (BAD,)),
]  # fmt: skip

HEADS = [
    Row("HTTP/0.9", b"GET /health\r\n\r\n", ("505 unknown_http_version",)),
    Row("HTTP/1.0", b"GET /health HTTP/1.0\r\n\r\n", ("200",)),
    Row("HTTP/1.0 that asks for keep-alive", b"GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" + MODELS,
        ("200",)),
    Row("HTTP/1.0 with a body", b"POST /v1/chat/completions HTTP/1.0\r\n" + SIZE + b"\r\n" + BODY, ("200",), 1),
    Row("HTTP/1.2", b"GET /health HTTP/1.2\r\nHost: x\r\n\r\n", (BAD,)),
    Row("HTTP/2.0", b"GET /health HTTP/2.0\r\nHost: x\r\n\r\n", ("505 unknown_http_version",)),
    Row("HTTP/11", b"GET /health HTTP/11\r\nHost: x\r\n\r\n", (BAD,)),
    Row("HTTP/2's preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", (BAD,)),
    Row("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", (BAD,)),
    Row("SSH", b"SSH-2.0-OpenSSH_9.6\r\n", (BAD,)),
    Row("SOCKS", b"\x05\x01\x00", (BAD,)),
    Row("RTSP", b"OPTIONS * RTSP/1.0\r\nHost: x\r\n\r\n", ("404 not_found",)),
    Row("CONNECT", b"CONNECT other:443 HTTP/1.1\r\nHost: other:443\r\n\r\n", ("405 method_not_allowed",)),
    Row("TRACE", b"TRACE /health HTTP/1.1\r\nHost: x\r\n\r\n", ("405 method_not_allowed",), lives=True),
    Row("an unknown method", b"BREW /health HTTP/1.1\r\nHost: x\r\n\r\n", (BAD,)),
    Row("a method in lower case", b"get /health HTTP/1.1\r\nHost: x\r\n\r\n", (BAD,)),
    Row("DELETE where POST is meant", b"DELETE /v1/chat/completions HTTP/1.1\r\nHost: x\r\n\r\n",
        ("405 method_not_allowed",), lives=True),
    Row("GET where POST is meant", b"GET /v1/chat/completions HTTP/1.1\r\nHost: x\r\n\r\n", ("405 method_not_allowed",),
        lives=True),
    Row("an absolute target", b"GET http://other/health HTTP/1.1\r\nHost: x\r\n\r\n", ("200",), lives=True),
    Row("an absolute target to an engine", b"POST http://127.0.0.1:1/v1/chat/completions HTTP/1.1\r\nHost: x\r\n" + SIZE
        + b"\r\n" + BODY, ("200",), 1, lives=True),
    Row("a target of another scheme", b"GET file:///etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n",
        ("400 bad_request_target",)),
    Row("a target without a slash", b"GET health HTTP/1.1\r\nHost: x\r\n\r\n", (BAD,)),
    Row("a fragment", b"GET /health#x HTTP/1.1\r\nHost: x\r\n\r\n", ("400 bad_request_target",)),
    Row("dots in the path", b"GET /v1/../gateway/status HTTP/1.1\r\nHost: x\r\n\r\n", ("404 not_found",), lives=True),
    Row("escaped dots in the path", b"GET /v1/%2e%2e/health HTTP/1.1\r\nHost: x\r\n\r\n",
        ("404 not_found",), lives=True),
    Row("a doubled slash", b"POST //v1/chat/completions HTTP/1.1\r\nHost: x\r\n" + SIZE + b"\r\n" + BODY,
        ("200",), 1, lives=True),
    Row("an escaped NUL in the path", b"GET /v1/models/%00 HTTP/1.1\r\nHost: x\r\n\r\n",
        ("404 unknown_model",), lives=True),
    Row("line breaks in the path", b"GET /v1/models/a%0d%0aX:%20y HTTP/1.1\r\nHost: x\r\n\r\n", ("404 unknown_model",),
        lives=True),
    Row("a path that is no UTF-8", b"GET /v1/models/%ff%fe HTTP/1.1\r\nHost: x\r\n\r\n",
        ("404 unknown_model",), lives=True),
    Row("raw bytes in the path", b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n", (BAD,)),
    Row("a blank in the path", b"GET /v1/ models HTTP/1.1\r\nHost: x\r\n\r\n", (BAD,)),
    Row("a path of 70 KiB", b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", ("431 head_too_large",)),
    Row("a head of 70 KiB", MODELS[:-2] + b"X: " + b"a" * 70_000 + b"\r\n\r\n", ("431 head_too_large",)),
    Row("a head of 60 KiB", MODELS[:-2] + b"X: " + b"a" * 60_000 + b"\r\n\r\n", ("200",), lives=True),
    Row("200 fields", MODELS[:-2] + b"X: y\r\n" * 200 + b"\r\n", ("431 head_too_large",)),
    Row("a key of 50 KiB", MODELS[:-2] + b"Authorization: Bearer " + b"a" * 50_000 + b"\r\n\r\n", ("200",), lives=True),
    Row("no Host", b"GET /health HTTP/1.1\r\n\r\n", ("400 bad_host",)),
    Row("two Hosts", b"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", ("400 bad_host",)),
    Row("a Host that attacks", b"GET /gateway/status HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        ("403 admin_origin_denied",),
        lives=True),
    Row("a Host with a path", b"GET /gateway/status HTTP/1.1\r\nHost: localhost/x\r\n\r\n",
        ("403 admin_origin_denied",),
        lives=True),
    Row("an obs-fold", MODELS[:-2] + b"X: a\r\n b\r\n\r\n", (BAD,)),
    Row("a NUL in a value", MODELS[:-2] + b"X: a\x00b\r\n\r\n", (BAD,)),
    Row("a NUL in a name", MODELS[:-2] + b"X\x00: b\r\n\r\n", (BAD,)),
    Row("a bell in a value", MODELS[:-2] + b"X: \x07\r\n\r\n", (BAD,)),
    Row("Latin-1 in a value", MODELS[:-2] + b"X: caf\xe9\r\n\r\n", ("200",), lives=True),
    Row("bare LF line ends", MODELS.replace(b"\r\n", b"\n"), (BAD,)),
    Row("bare CR line ends", MODELS.replace(b"\r\n", b"\r"), (BAD,)),
    Row("blank lines before a request", b"\r\n\r\n\r\n" + MODELS, ("200",), lives=True),
    Row("an odd request id", text(BODY, b"X-Request-Id: a b\"c"), ("200",), 1, lives=True),
    Row("a websocket", MODELS[:-2] + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n", ("200",), lives=True),
    Row("an unknown expectation", HEAD + b"Expect: gold\r\n" + SIZE + b"\r\n" + BODY, ("417 unknown_expectation",)),
    Row("HEAD", b"HEAD /health HTTP/1.1\r\nHost: x\r\n\r\n", ("200 head",), lives=True),
    Row("HEAD of what is not there", b"HEAD /nothing HTTP/1.1\r\nHost: x\r\n\r\n", ("404 head",), lives=True),
]  # fmt: skip


BODIES = [
    Row("no body", text(""), (JSON,), lives=True),
    Row("no body and no length", HEAD + b"\r\n", (JSON,), lives=True),
    Row("no JSON", text("hello"), (JSON,), lives=True),
    Row("cut JSON", text(BODY[:-1]), (JSON,), lives=True),
    Row("two objects", text(BODY + BODY), (JSON,), lives=True),
    Row("a comma too many", text('{"model":"m",}'), (JSON,), lives=True),
    Row("NaN", text('{"model":"m","x":NaN}'), (JSON,), lives=True),
    Row("a BOM", text(b"\xef\xbb\xbf" + BODY), (JSON,), lives=True),
    Row("UTF-16", text(BODY.decode().encode("utf-16")), (JSON,), lives=True),
    Row("invalid UTF-8", text(b'{"model":"m","messages":[{"role":"user","content":"\xff\xfe"}]}'), (JSON,), lives=True),
    Row("an overlong encoding", text(b'{"model":"m","x":"\xc0\xaf"}'), (JSON,), lives=True),
    Row("a raw surrogate", text(b'{"model":"m","x":"\xed\xa0\x80"}'), (JSON,), lives=True),
    Row("an escaped lone surrogate", text('{"model":"\\ud800"}'), (JSON,), lives=True),
    Row("a raw line break in a string", text('{"model":"m","x":"a\nb"}'), (JSON,), lives=True),
    Row("an array", text("[1,2]"), ("400 invalid_request",), lives=True),
    Row("null", text("null"), ("400 invalid_request",), lives=True),
    Row("a number", text("1e999"), ("400 invalid_request",), lives=True),
    Row("no model", text('{"messages":[]}'), ("400 missing_model",), lives=True),
    Row("model null", text('{"model":null}'), ("400 missing_model",), lives=True),
    Row("model a number", text('{"model":1}'), ("400 invalid_request",), lives=True),
    Row("model an object", text('{"model":{"id":"m"}}'), ("400 invalid_request",), lives=True),
    Row("an empty model", text('{"model":""}'), ("400 missing_model",), lives=True),
    Row("a model of 1 MB", text(json.dumps({"model": "m" * 1_000_000})), ("400 missing_model",), lives=True),
    Row("a model with markup", text('{"model":"<script>\\u0000\\r\\n"}'), ("404 unknown_model",), lives=True),
    Row("two models, the last counts", text('{"model":"none","messages":[],"model":"m"}'), ("200",), 1, lives=True),
    Row("two models, the last is none", text('{"model":"m","messages":[],"model":"none"}'),
        ("404 unknown_model",), lives=True),
    Row("an escaped model", text('{"\\u006dodel":"\\u006d","messages":[]}'), ("200",), 1, lives=True),
    Row("stream a word", text('{"model":"m","stream":"yes"}'), ("400 invalid_request",), lives=True),
    Row("stream null", text('{"model":"m","stream":null}'), ("200",), 1, lives=True),
    Row("100,000 brackets", text('{"model":"m","x":' + "[" * 100_000), (JSON,), lives=True),
    Row("100,000 levels", text('{"model":"m","x":' + "[" * 100_000 + "]" * 100_000 + "}"), (JSON,), lives=True),
    Row("5,000 levels in a large body", text('{"x":"' + PNG + '","model":"m","y":' + '{"a":' * 5000 + "1" + "}" * 5001),
        (JSON,), lives=True),
    Row("100,000 keys", text(json.dumps({f"k{n}": n for n in range(100_000)} | {"model": "m"})),
        ("200",), 1, lives=True),
    Row("a number of 4,000 digits", text('{"model":"m","x":' + "9" * 4_000 + "}"), ("200",), 1, lives=True),
    Row("the model after 20 MB", text('{"image":"' + PNG * 20 + '","model":"m"}'), ("200",), 1, lives=True),
    Row("a wrong model after 20 MB", text('{"image":"' + PNG * 20 + '","model":"x"}'),
        ("404 unknown_model",), lives=True),
    Row("another content type", sized(BODY, b"Content-Type: text/plain"), ("200",), 1, lives=True),
    Row("no content type", sized(BODY), ("200",), 1, lives=True),
    Row("a form's content type", sized(BODY, b"Content-Type: application/x-www-form-urlencoded"),
        ("200",), 1, lives=True),
    Row("multipart where JSON is meant", sized(BODY, b"Content-Type: multipart/form-data; boundary=x"),
        ("415 unsupported_content_type",), lives=True),
    Row("gzip", sized(gzip.compress(BODY), b"Content-Encoding: gzip"),
        ("415 unsupported_content_encoding",), lives=True),
    Row("identity", sized(BODY, b"Content-Encoding: identity"), ("200",), 1, lives=True),
    Row("a body of 64 MiB and a byte", HEAD + b"Content-Length: 67108865\r\n\r\n", ("413 body_too_large",)),
    Row("chunks of 64 MiB and a byte", HEAD + CODED + b"\r\n4000001\r\n" + b"a" * 67_108_865, ("413 body_too_large",)),
    Row("too long, and asking first", HEAD + b"Expect: 100-continue\r\nContent-Length: 67108865\r\n\r\n",
        ("413 body_too_large",)),
]  # fmt: skip

PIPELINES = [
    Row("three requests", MODELS * 3, ("200",) * 3, lives=True),
    Row("asks and errors mixed", text(BODY) + text("x") + text(BODY) + MODELS,
        ("200", JSON, "200", "200"), 2, lives=True),
    Row("a bad head after good ones", MODELS + text(BODY) + b"nonsense\r\n\r\n" + MODELS, ("200", "200", BAD), 1),
    Row("a close in the middle", MODELS + MODELS[:-2] + b"Connection: close\r\n\r\n" + MODELS, ("200", "200")),
    Row("an HTTP/1.0 in the middle", MODELS + b"GET /health HTTP/1.0\r\n\r\n" + MODELS, ("200", "200")),
    Row("an expectation in the middle", MODELS + HEAD + b"Expect: 100-continue\r\n" + SIZE + b"\r\n" + BODY + MODELS,
        ("200", "200", "200"), 1, lives=True),
    Row("a body that was not waited for", HEAD + b"Expect: 100-continue\r\n" + SIZE + b"\r\n" + BODY, ("200",), 1,
        lives=True),
    Row("an upgrade in the middle", MODELS + text(BODY, b"Connection: Upgrade", b"Upgrade: h2c") + MODELS,
        ("200", "200", "200"), 1, lives=True),
    Row("unknown paths", sized(b"", path="/a") + sized(b"x" * 10, path="/b") + MODELS,
        ("404 not_found", "404 not_found", "200"), lives=True),
]  # fmt: skip

ROWS = [*SMUGGLING, *CHUNKS, *HEADS, *BODIES, *PIPELINES]
