"""Bodies of every kind: right or a clear 400, never anything else."""

import json

import pytest

from gateway.decode import check_content, read_asked
from gateway.errors import ApiError

BIG = 20 << 20

RIGHT: list[tuple[str, bytes, str, bool]] = [
    ("plain", b'{"model":"a"}', "a", False),
    ("streamed", b'{"model":"a","stream":true}', "a", True),
    ("not streamed", b'{"model":"a","stream":false}', "a", False),
    ("stream null", b'{"model":"a","stream":null}', "a", False),
    ("unknown fields", b'{"model":"a","frobnicate":{"x":[1,2,{"y":null}]}}', "a", False),
    ("white space", b' \r\n\t{ "model" : "a" } \n', "a", False),
    ("escaped key", rb'{"mo\u0064el":"a"}', "a", False),
    ("escaped value", rb'{"model":"\u0061"}', "a", False),
    ("emoji as surrogate pair", rb'{"model":"\ud83d\ude00"}', "😀", False),
    ("utf-8", '{"model":"modèle-é"}'.encode(), "modèle-é", False),
    ("slashes", b'{"model":"org/name:tag"}', "org/name:tag", False),
    ("control characters, escaped", rb'{"model":"a\n\u0000b"}', "a\n\x00b", False),
    ("duplicate model, last wins", b'{"model":"a","model":"b"}', "b", False),
    ("duplicate stream, last wins", b'{"model":"a","stream":true,"stream":false}', "a", False),
    ("duplicate by escape", rb'{"model":"a","\u006dodel":"b"}', "b", False),
    ("model in a nested object is not ours", b'{"x":{"model":"b"},"model":"a"}', "a", False),
    ("model after 20 MB", b'{"x":"' + b"A" * BIG + b'","model":"a"}', "a", False),
    ("model before 20 MB", b'{"model":"a","x":"' + b"A" * BIG + b'"}', "a", False),
    ("many keys", b"{" + b",".join(b'"k%d":%d' % (n, n) for n in range(50_000)) + b',"model":"a"}', "a", False),
    ("wide array", b'{"x":[' + b"1," * 200_000 + b'1],"model":"a"}', "a", False),
    ("500 levels deep", b'{"x":' + b"[" * 500 + b"]" * 500 + b',"model":"a"}', "a", False),
    ("stream options", b'{"model":"a","stream_options":{"include_usage":true,"x":1}}', "a", False),
    ("stream options null", b'{"model":"a","stream_options":null}', "a", False),
    ("huge number elsewhere", b'{"model":"a","seed":' + b"9" * 400 + b"}", "a", False),
    ("float out of range elsewhere", b'{"model":"a","temperature":1e999}', "a", False),
    ("a 4 KB name", b'{"model":"' + b"m" * 4096 + b'"}', "m" * 4096, False),
]

WRONG: list[tuple[str, bytes, str]] = [
    ("empty", b"", "invalid_json"),
    ("blank", b"  \n", "invalid_json"),
    ("not json", b"model=a", "invalid_json"),
    ("cut off", b'{"model":"a"', "invalid_json"),
    ("cut off in a string", b'{"model":"a', "invalid_json"),
    ("two documents", b'{"model":"a"}{"model":"b"}', "invalid_json"),
    ("trailing text", b'{"model":"a"} x', "invalid_json"),
    ("trailing comma", b'{"model":"a",}', "invalid_json"),
    ("single quotes", b"{'model':'a'}", "invalid_json"),
    ("comment", b'{"model":"a" /* x */}', "invalid_json"),
    ("BOM", b'\xef\xbb\xbf{"model":"a"}', "invalid_json"),
    ("UTF-16", '{"model":"a"}'.encode("utf-16"), "invalid_json"),
    ("NaN", b'{"model":"a","x":NaN}', "invalid_json"),
    ("Infinity", b'{"model":"a","x":-Infinity}', "invalid_json"),
    ("leading zero", b'{"model":"a","x":01}', "invalid_json"),
    ("raw control character", b'{"model":"a\x01"}', "invalid_json"),
    ("raw newline", b'{"model":"a\nb"}', "invalid_json"),
    ("NUL byte", b'\x00{"model":"a"}', "invalid_json"),
    ("invalid UTF-8 in the model", b'{"model":"\xff"}', "invalid_json"),
    ("surrogate in UTF-8", b'{"model":"\xed\xa0\x80"}', "invalid_json"),
    ("lone surrogate", rb'{"model":"\ud800abcdef"}', "invalid_json"),
    ("100,000 levels of arrays", b'{"model":"a","x":' + b"[" * 100_000, "invalid_json"),
    ("100,000 levels of objects", b'{"x":' * 100_000, "invalid_json"),
    ("gzip", b"\x1f\x8b\x08\x00\x00", "invalid_json"),
    ("array", b"[]", "invalid_request"),
    ("null", b"null", "invalid_request"),
    ("string", b'"model"', "invalid_request"),
    ("number", b"1", "invalid_request"),
    ("model a number", b'{"model":3}', "invalid_request"),
    ("model a list", b'{"model":["a"]}', "invalid_request"),
    ("model an object", b'{"model":{"id":"a"}}', "invalid_request"),
    ("model true", b'{"model":true}', "invalid_request"),
    ("stream a string", b'{"model":"a","stream":"true"}', "invalid_request"),
    ("stream a number", b'{"model":"a","stream":1}', "invalid_request"),
    ("stream options a list", b'{"model":"a","stream_options":[]}', "invalid_request"),
    ("include_usage a string", b'{"model":"a","stream_options":{"include_usage":"yes"}}', "invalid_request"),
    ("no model", b"{}", "missing_model"),
    ("model null", b'{"model":null}', "missing_model"),
    ("model empty", b'{"model":""}', "missing_model"),
    ("model in other case", b'{"Model":"a"}', "missing_model"),
]


@pytest.mark.parametrize(("body", "model", "stream"), [row[1:] for row in RIGHT], ids=[row[0] for row in RIGHT])
def test_what_can_be_read_is_read_right(body: bytes, model: str, stream: bool) -> None:
    asked = read_asked(body)
    assert (asked.model, bool(asked.stream)) == (model, stream)


@pytest.mark.parametrize(("body", "code"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_what_cannot_be_read_is_a_400_with_a_short_message(body: bytes, code: str) -> None:
    with pytest.raises(ApiError) as caught:
        read_asked(body)
    assert (caught.value.http_status, caught.value.code) == (400, code)
    assert len(caught.value.message) < 300
    assert json.loads(caught.value.body())["error"]["type"] == "invalid_request_error"


def test_usage_is_wanted_only_when_it_was_asked_for() -> None:
    assert read_asked(b'{"model":"a","stream_options":{"include_usage":true}}').wants_usage
    assert not read_asked(b'{"model":"a","stream_options":{"include_usage":null}}').wants_usage
    assert not read_asked(b'{"model":"a"}').wants_usage


@pytest.mark.parametrize(
    ("content_type", "encoding", "code"),
    [
        ("application/json", "", ""),
        ("application/json; charset=utf-8", "identity", ""),
        ("", "", ""),
        ("application/x-www-form-urlencoded", "", ""),
        ("text/plain", "", ""),
        ("multipart/form-data; boundary=x", "", "unsupported_content_type"),
        ("MULTIPART/mixed", "", "unsupported_content_type"),
        ("application/json", "gzip", "unsupported_content_encoding"),
        ("application/json", "br", "unsupported_content_encoding"),
        ("application/json", "gzip, identity", "unsupported_content_encoding"),
    ],
)
def test_only_what_cannot_be_json_is_a_415(content_type: str, encoding: str, code: str) -> None:
    if not code:
        check_content(content_type.encode(), encoding.encode())
        return
    with pytest.raises(ApiError) as caught:
        check_content(content_type.encode(), encoding.encode())
    assert (caught.value.http_status, caught.value.code) == (415, code)
