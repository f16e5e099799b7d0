"""What a conversation is known by: the same number for each of its turns, another for another conversation."""

import json

import pytest

from gateway.affinity import is_worth_finding, read_beginning

SYSTEM = {"role": "system", "content": "You are {brave}."}
USER = {"role": "user", "content": "What is `dict[str, {}]`?"}
REPLY = {"role": "assistant", "content": 'It is {"a": 1}, said the "user".'}
PARTS = {
    "role": "user",
    "content": [{"type": "text", "text": "Look"}, {"type": "image_url", "image_url": {"url": "x"}}],
}
BACKWARDS = {"content": "Hello", "role": "user"}
MORE = {"role": "user", "content": "And then?"}


def body(*messages: object, **fields: object) -> bytes:
    return json.dumps({"model": "m", "messages": messages} | fields).encode()


@pytest.mark.parametrize("first", [USER, PARTS, BACKWARDS], ids=["text", "parts", "role last"])
@pytest.mark.parametrize("before", [(), (SYSTEM,)], ids=["no system", "system"])
@pytest.mark.parametrize("fields", [{}, {"stream": True, "tools": [{"a": {}}]}, {"user": "team"}], ids=repr)
def test_all_turns_of_a_conversation_have_one_beginning(
    first: object, before: tuple[object, ...], fields: dict[str, object]
) -> None:
    turns = [
        body(*before, first, **fields),
        body(*before, first, REPLY, MORE, **fields),
        body(*before, first, REPLY, MORE, REPLY, PARTS, **fields),
        # Written without spaces by another library it would be another; but what stands behind it does not matter.
        body(*before, first, REPLY, MORE, temperature=1),
    ]
    found = {read_beginning(turn) for turn in turns}
    assert len(found) == 1 and None not in found


def test_another_system_or_another_first_message_is_another_conversation() -> None:
    bodies = [
        body(USER),
        body(SYSTEM, USER),
        body(SYSTEM | {"content": "Be brief."}, USER),
        body(SYSTEM, MORE),
        body(SYSTEM | {"content": "x" * 5000}, USER),
        body(SYSTEM | {"content": "x" * 5001}, USER),
        body(SYSTEM | {"content": "x" * 2500 + "y" + "x" * 2500}, USER | {"content": "other"}),
    ]
    assert len({read_beginning(each) for each in bodies}) == len(bodies)


def test_anthropics_system_is_part_of_the_beginning_where_it_stands_before_the_messages() -> None:
    one = json.dumps({"model": "m", "system": "A", "messages": [USER]}).encode()
    two = json.dumps({"model": "m", "system": "B", "messages": [USER]}).encode()
    assert read_beginning(one) != read_beginning(two)


@pytest.mark.parametrize(
    "text",
    [b"", b"{}", b"[]", b'{"messages"', b'{"messages":[]}', b'{"messages":[{"role":"system"}]}', b'{"prompt":"short"}',
     b'{"input":"one text"}', b"\xff\xfe", b'"messages""user"'[:-1]],
    ids=repr,
)  # fmt: skip
def test_what_has_no_conversation_has_no_beginning(text: bytes) -> None:
    assert read_beginning(text) is None


def test_a_long_prompt_is_known_by_how_it_begins() -> None:
    text = "Once upon a time. " * 100
    grown = [json.dumps({"model": "m", "prompt": text + more}).encode() for more in ("", "And then.", "No.")]
    assert len({read_beginning(each) for each in grown}) == 1
    assert read_beginning(json.dumps({"model": "m", "prompt": "x" + text}).encode()) != read_beginning(grown[0])


def test_an_image_of_twenty_megabytes_is_not_read() -> None:
    image = {"type": "image_url", "image_url": {"url": "A" * (20 << 20)}}
    one = body({"role": "user", "content": [image]})
    two = body({"role": "user", "content": [image]}, REPLY, MORE)
    assert read_beginning(one) == read_beginning(two) is not None


@pytest.mark.parametrize(
    ("text", "is_worth"),
    [
        (body(USER), False),
        (body(SYSTEM, USER), False),
        (body(USER, REPLY, MORE), True),
        (body(SYSTEM | {"content": "x" * 3000}, USER), True),
        (body({"role": "user", "content": 'She said "assistant".'}), False),
    ],
)
def test_only_a_later_turn_or_a_long_text_is_worth_finding(text: bytes, is_worth: bool) -> None:
    assert is_worth_finding(text) is is_worth


def test_a_beginning_is_the_same_everywhere() -> None:
    # A constant: all workers, all gateways, all versions.
    assert read_beginning(b'{"model":"m","messages":[{"role":"user","content":"hi"}]}') == 2653580238217354877
