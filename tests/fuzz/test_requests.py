"""HTTP heads and JSON bodies from nowhere: never an exception, and the same meaning however they are cut."""

import json

import msgspec
from httptools import HttpParserError

from core.http.asgi import Headers
from core.http.framing import DecodedFraming, ResponseFraming
from core.http.repeat import remember_response
from gateway.decode import read_asked
from gateway.errors import ApiError
from gateway.forms import FormReader
from gateway.rewrite import rename_model
from gateway.shorten import shorten_strings
from tests.fuzz import heads
from tests.fuzz.mutation import Mutator, fuzz

_PADDING = b'"image":"' + b"A" * 70_000 + b'",'
_BODIES = [
    b'{"model":"m","messages":[{"role":"user","content":"hi \\u00e9 \\"quoted\\" \\\\"}],"stream":true}',
    b'{"stream":null,"stream_options":{"include_usage":true},"x":[1,2.5e3,-0,null,{"model":"inner"}],"model":"m"}',
    b'{"model":"a","model":"b","stream":false,"temperature":0.7}',
    b"{" + _PADDING + _PADDING + b'"model":"m","x":"a\\\\"}',
    b'{"model":"m",' + _PADDING + b'"y":"\\"",' + _PADDING + b'"stream":true}',
]
_JSON_WORDS = [
    b'"model":"z",', b'"', b"\\", b'\\"', b"\\u006d", b"{", b"}", b"[", b"]", b"[" * 3000, b",", b":", b"null", b"NaN",
    b"1e999", b"\xed\xa0\x80", b"\xef\xbb\xbf", _PADDING,
]  # fmt: skip
_ANSWERS = [
    b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-type: application/json\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nx: y\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 Busy\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
    b"HTTP/1.0 200 OK\r\n\r\nuntil the end",
    b"HTTP/1.1 204 No Content\r\n\r\n",
]


def test_a_connection_sees_the_same_requests_however_they_are_cut() -> None:
    def check(data: bytes, mutator: Mutator) -> None:
        whole = heads.converse([data])
        assert heads.converse(mutator.cuts(data)) == whole
        # Again on one connection: what is recalled means what was parsed.
        asked, _ = heads.converse([data, data])
        assert asked[: len(whole[0])] == whole[0]

    fuzz("heads", heads.SAMPLES, heads.WORDS, check)


def test_a_body_means_what_every_json_reader_says_or_is_refused() -> None:
    def check(data: bytes, mutator: Mutator) -> None:
        try:
            asked = read_asked(data)
        except ApiError as error:
            assert error.http_status == 400
            json.loads(error.body())
            return
        try:
            told = json.loads(data, strict=False)
        except ValueError:
            assert len(data) > 128 << 10  # the inside of long strings is not looked at
            return
        assert asked.model == told["model"]
        assert asked.stream == told.get("stream")

    fuzz("bodies", _BODIES, _JSON_WORDS, check)


def test_a_body_that_every_json_reader_takes_and_that_names_a_model_is_taken() -> None:
    def check(data: bytes, mutator: Mutator) -> None:
        try:
            told = json.loads(data.decode(), parse_constant=_refuse)
        except (ValueError, RecursionError):
            return
        if not isinstance(told, dict) or not isinstance(told.get("model"), str) or not told["model"]:
            return
        if told.get("stream") not in (None, True, False) or not _is_plain(told):
            return
        if any(data.count(name) > 1 for name in (b'"model"', b'"stream"')):
            return  # of two the last counts, but the first is judged too
        try:
            assert read_asked(data).model == told["model"]
        except ApiError as error:
            # Stricter than Python in two ways, as engines are: lone surrogates, and depth.
            assert (
                "surrogate" in error.message
                or "nested" in error.message
                or "stream_options" in error.message
                or ("out of range" in error.message or len(told["model"]) > 64_000)
            ), error.message

    fuzz("good bodies", _BODIES, _JSON_WORDS, check)


def _refuse(word: str) -> None:
    raise ValueError(word)


def _is_plain(told: dict[str, object]) -> bool:
    try:
        json.dumps(told, ensure_ascii=False).encode()
    except (UnicodeEncodeError, RecursionError):
        return False
    return isinstance(told.get("stream"), bool | None)


def test_a_shortened_body_has_the_same_short_members() -> None:
    decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])

    def check(data: bytes, mutator: Mutator) -> None:
        try:
            told = decoder.decode(data)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return
        short = decoder.decode(shorten_strings(data))
        assert list(short) == list(told) or max(map(len, told)) > 60_000
        for name, value in told.items():
            if len(value) < 60_000 and len(name) < 60_000:
                assert bytes(short[name]) == bytes(value)

    fuzz("shorten", _BODIES[3:], _JSON_WORDS, check)


def test_a_renamed_body_differs_in_its_model_alone() -> None:
    def check(data: bytes, mutator: Mutator) -> None:
        renamed = rename_model(data, "other")
        if renamed != data and _is_utf_8(data):
            before, after = json.loads(data), json.loads(renamed)
            assert after == before | {"model": "other"}

    fuzz("rename", _BODIES[:3], _JSON_WORDS[:-1], check)


def _is_utf_8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


_FORMS = [
    b'--xYz\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n'
    b'--xYz\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n\0\1\r\n--xY\r\n--xYz--\r\n',
    b'--xYz\r\nContent-Type: a/b\r\ncontent-disposition: form-data; name="prompt"\r\n\r\n\r\n--xYz\r\n'
    b'Content-Disposition: form-data; name="stream"\r\n\r\ntrue\r\n--xYz--',
]
_FORM_WORDS = [b"--xYz", b"\r\n--xYz\r\n", b"--xYz--", b"\r\n\r\n", b'name="model"', b"filename=", b"--", b"x" * 20_000]


def test_a_form_has_the_same_fields_however_it_is_cut() -> None:
    def read(pieces: list[bytes]) -> tuple[list[tuple[bytes, bytes]], str]:
        reader, come, found = FormReader(b"xYz"), bytearray(), []
        try:
            for piece in pieces:
                come += piece
                while (field := reader.next_field(come)) is not None:
                    found.append((field.name, field.value))
        except ApiError as error:
            return found, error.code
        return found, ""

    def check(data: bytes, mutator: Mutator) -> None:
        assert read(mutator.cuts(data)) == read([data])

    fuzz("forms", _FORMS, _FORM_WORDS, check)


def test_an_engines_answer_is_read_alike_however_it_is_cut_or_is_broken() -> None:
    def read(pieces: list[bytes]) -> tuple[bytes, Headers, int, bool]:
        parts: list[bytes] = []
        framing = DecodedFraming(parts.append)
        try:
            for piece in pieces:
                framing.feed(piece)
        except HttpParserError:
            return b"broken", [], 0, False
        return b"".join(parts), framing.headers, framing.status, framing.complete

    def check(data: bytes, mutator: Mutator) -> None:
        assert read([data]) == read(mutator.cuts(data))
        framing = ResponseFraming()
        try:
            framing.feed(data)
        except HttpParserError:
            return
        if framing.complete and framing.status == 200:
            remember_response(data, framing.status, framing.headers, len(data.partition(b"\r\n\r\n")[2]))

    fuzz("answers", _ANSWERS, heads.WORDS, check)
