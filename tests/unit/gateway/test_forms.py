"""Reading the model out of a form that is still arriving, however it is cut."""

import pytest

from gateway.errors import ApiError
from gateway.forms import FormReader, read_boundary

B = b"xYz"


def part(name: str, value: bytes, extra: str = "") -> bytes:
    return f'--xYz\r\nContent-Disposition: form-data; name="{name}"{extra}\r\n\r\n'.encode() + value + b"\r\n"


FILE = part("file", b"\0\r\n--xY\r\n\r\n" * 100, '; filename="model.wav"')
END = b"--xYz--\r\n"


def fields(data: bytes, step: int) -> list[tuple[bytes, bytes]]:
    reader, come = FormReader(B), bytearray()
    found = []
    for at in range(0, len(data), step):
        come += data[at : at + step]
        while (field := reader.next_field(come)) is not None:
            assert come[field.begin : field.begin + len(field.value)] == field.value
            found.append((field.name, field.value))
    return found


FORMS: list[tuple[str, bytes, list[tuple[bytes, bytes]]]] = [
    ("text alone", part("model", b"m") + END, [(b"model", b"m")]),
    ("the file last", part("model", b"m") + part("stream", b"true") + FILE + END,
     [(b"model", b"m"), (b"stream", b"true")]),
    ("the file first", FILE + part("model", b"m") + END, [(b"model", b"m")]),
    ("an empty value", part("model", b"") + END, [(b"model", b"")]),
    ("a file that is called model", part("model", b"x", '; filename="a"') + part("model", b"m") + END,
     [(b"model", b"m")]),
    ("a long value", part("prompt", b"x" * 5000) + part("model", b"m") + END, [(b"model", b"m")]),
    ("what follows the end", part("model", b"m") + END + part("model", b"other"), [(b"model", b"m")]),
    ("no parts", END, []),
    ("other headers", b'--xYz\r\nX: y\r\ncontent-disposition: form-data; NAME="model"\r\nA: b\r\n\r\nm\r\n' + END,
     [(b"model", b"m")]),
    ("a part without a name", b"--xYz\r\nContent-Disposition: form-data\r\n\r\nm\r\n" + END, []),
]  # fmt: skip


@pytest.mark.parametrize("step", [1, 2, 7, 1000, 1 << 20])
@pytest.mark.parametrize(("data", "expected"), [form[1:] for form in FORMS], ids=[form[0] for form in FORMS])
def test_text_fields_are_found_in_their_order(data: bytes, expected: list[tuple[bytes, bytes]], step: int) -> None:
    assert fields(data, step) == expected


@pytest.mark.parametrize(
    "data", [b"hello, this is no form", b"--other\r\n", b"--xYzq\r\n", b"--xYz\r\n" + b"a" * 20_000]
)
def test_what_is_no_form_is_refused(data: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        fields(data, 1000)
    assert (caught.value.http_status, caught.value.code) == (400, "invalid_form")


@pytest.mark.parametrize(
    ("content_type", "boundary"),
    [
        (b"multipart/form-data; boundary=abc", b"abc"),
        (b'multipart/form-data; charset=utf-8; Boundary="a b"', b"a b"),
        (b"Multipart/Form-Data;boundary=----WebKitFormBoundary7MA4", b"----WebKitFormBoundary7MA4"),
    ],
)
def test_the_boundary_is_read(content_type: bytes, boundary: bytes) -> None:
    assert read_boundary(content_type) == boundary


@pytest.mark.parametrize(
    ("content_type", "code"),
    [
        (b"application/json", "unsupported_content_type"),
        (b"multipart/mixed; boundary=a", "unsupported_content_type"),
        (b"multipart/form-data", "invalid_form"),
        (b"multipart/form-data; boundary=", "invalid_form"),
        (b"multipart/form-data; boundary=" + b"a" * 100, "invalid_form"),
    ],
)
def test_a_type_that_says_no_boundary_is_refused(content_type: bytes, code: str) -> None:
    with pytest.raises(ApiError) as caught:
        read_boundary(content_type)
    assert caught.value.code == code
