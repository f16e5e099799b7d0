"""A model's other name on the way to an engine and back."""

import json

import pytest

from gateway.rewrite import StreamRenamer, rename_model


@pytest.mark.parametrize(
    ("body", "want"),
    [
        (b'{"model":"a","x":1.50}', b'{"model":"new","x":1.50}'),
        (b'{"x":"\\u00e9", "model" : "a" }', b'{"x":"\\u00e9","model":"new"}'),
        (b'{"model":"a","y":{"model":"a"},"model":"b"}', b'{"model":"new","y":{"model":"a"}}'),
        (b'{"x":1}', b'{"x":1}'),
        (b"[1]", b"[1]"),
        (b"not json", b"not json"),
        (b"", b""),
        (b'{"model":null}', b'{"model":"new"}'),
    ],
)
def test_only_the_top_level_model_changes(body: bytes, want: bytes) -> None:
    assert rename_model(body, "new") == want


def test_a_hostile_name_stays_a_json_string() -> None:
    assert json.loads(rename_model(b'{"model":"a"}', 'x","y":"\n')) == {"model": 'x","y":"\n'}


STREAM = (
    b'data: {"id":"1","model":"engine","choices":[{"delta":{"content":"the \\"model\\": \\"x\\" is"}}]}\n\n'
    b": ping\n\n"
    b'event: x\r\ndata: {"model" : "eng\\"ine","usage":null}\r\n\r\n'
    b"data: [DONE]\n\n"
)
WANT = (
    b'data: {"id":"1","model":"mine","choices":[{"delta":{"content":"the \\"model\\": \\"x\\" is"}}]}\n\n'
    b": ping\n\n"
    b'event: x\r\ndata: {"model":"mine","usage":null}\r\n\r\n'
    b"data: [DONE]\n\n"
)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 31, 64, 1000])
def test_a_stream_is_renamed_alike_however_it_is_cut(size: int) -> None:
    renamer = StreamRenamer("mine")
    got = b"".join(renamer.feed(STREAM[at : at + size]) for at in range(0, len(STREAM), size))
    assert got + renamer.finish() == WANT


def test_a_complete_event_is_never_held_back() -> None:
    assert StreamRenamer("mine").feed(STREAM) == WANT


def test_a_backslash_in_the_name_is_not_a_group_reference() -> None:
    renamer = StreamRenamer("a\\1\\g<0>")
    assert json.loads(renamer.feed(b'data: {"model":"x"}\n')[6:]) == {"model": "a\\1\\g<0>"}


def test_a_line_without_end_is_not_collected_for_ever() -> None:
    renamer = StreamRenamer("mine")
    sent = renamer.feed(b"data: ") + renamer.feed(b"A" * (1 << 20))
    assert len(sent) == (1 << 20) + 6
