"""A shortened JSON text says the same about every short member."""

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.decode import read_asked
from gateway.errors import ApiError
from gateway.shorten import shorten_strings

_LONG = "iVBORw0KGgo" * 20_000


def _body(content: object, *, after: bool = False) -> bytes:
    members: dict[str, object] = {"model": "m1", "stream": True}
    return json.dumps({"messages": content, **members} if after else {**members, "messages": content}).encode()


SHORTENED: list[tuple[str, bytes]] = [
    ("an image after the model", _body(_LONG)),
    ("an image before the model", _body(_LONG, after=True)),
    ("two images", _body([_LONG, _LONG], after=True)),
    ("an image between texts", _body(["hello", _LONG, "world"], after=True)),
    ("quotes before the image", _body(['say "hello"', _LONG], after=True)),
    ("line ends before the image", _body(["a\nb", _LONG], after=True)),
    ("a quote inside the image's string", _body('x"' + _LONG, after=True)),
    ("line ends inside the long string", _body(_LONG + "\n" + _LONG, after=True)),
    ("a long key", json.dumps({_LONG: 1, "model": "m1", "stream": True}).encode()),
]


@pytest.mark.parametrize("text", [row[1] for row in SHORTENED], ids=[row[0] for row in SHORTENED])
def test_long_strings_are_left_out_and_the_rest_is_the_same(text: bytes) -> None:
    short = shorten_strings(text)
    assert len(short) < 1000
    assert (read_asked(text).model, read_asked(text).stream) == ("m1", True)
    assert json.loads(short).keys() >= {"model", "stream"}


LEFT: list[tuple[str, bytes]] = [
    ("a short text", _body("hello")),
    ("many short strings", _body(["word"] * 50_000)),
    ("numbers", _body(list(range(100_000)))),
    ("blanks between members", b'{"model":"m1",' + b" " * 300_000 + b'"stream":true}'),
    ("an escaped backslash before the image", _body(["a\\", _LONG])),
    ("an escaped backslash at the image's end", _body(_LONG + "\\")),
    ("an escaped quote at the image's end", _body(_LONG + '"')),
    ("no quotes", b"[" + b"1," * 200_000 + b"1]"),
    ("one quote", b'"' + b"x" * 300_000),
    ("nothing", b""),
]


@pytest.mark.parametrize("text", [row[1] for row in LEFT], ids=[row[0] for row in LEFT])
def test_what_is_short_or_unclear_is_left_alone(text: bytes) -> None:
    assert shorten_strings(text) == text


@pytest.mark.parametrize("key", ["model", "stream", "mod", "el"])
def test_a_long_string_is_never_taken_for_a_name_that_we_know(key: str) -> None:
    with pytest.raises(ApiError) as refused:
        read_asked(json.dumps({_LONG + key: "m1"}).encode())
    assert refused.value.code == "missing_model"
    with pytest.raises(ApiError):
        read_asked(json.dumps({key + '"' + _LONG: "m1"}).encode())


_words = st.text(alphabet='ab"\\\n{}[]:,é', max_size=6)
_longs = st.builds(lambda head, tail: head + "x" * 140_000 + tail, _words, _words)
_values = st.recursive(
    st.none() | st.booleans() | st.integers() | _words | _longs,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_words, inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None, max_examples=200)
@given(_values, _values, _words)
def test_whatever_else_a_body_holds_the_model_is_read(before: object, after: object, model: str) -> None:
    text = json.dumps({"messages": before, "model": model, "user": after}).encode()

    class Wanted(msgspec.Struct):
        model: str

    assert msgspec.json.decode(shorten_strings(text), type=Wanted).model == model
    json.loads(shorten_strings(text))
