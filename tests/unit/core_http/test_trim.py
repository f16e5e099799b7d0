"""What is left out of a stream, however an engine and the network cut it, and what is not touched."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.http.trim import Trimmer


class Secrets:
    """Leaves out events that say so."""

    needle = b'"secret"'
    pattern = re.compile(rb'"secret"\s*:\s*\{')

    def is_unwanted(self, event: bytes) -> bool:
        return b'"secret":{"yes"' in event


KEPT = (b'data: {"a":1}', b'data: {"secret":null}', b'data: {"secret":{"no":1}}', b": ping", b"event: x\ndata: [DONE]")
SECRET = b'data: {"secret":{"yes":1}}'
LAST = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def unchunk(wire: bytes) -> bytes:
    """The body of a whole chunked message."""
    parts: list[bytes] = []
    while True:
        size, _, wire = wire.partition(b"\r\n")
        length = int(size, 16)
        if not length:
            assert wire == b"\r\n"
            return b"".join(parts)
        parts.append(wire[:length])
        assert wire[length : length + 2] == b"\r\n"
        wire = wire[length + 2 :]


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[a:b] for a, b in zip(edges, edges[1:], strict=False)]


def pass_through(reads: list[bytes], *, is_chunked: bool = True) -> bytes:
    trimmer = Trimmer(Secrets(), is_chunked=is_chunked)
    return b"".join(trimmer.feed(read) for read in reads) + trimmer.finish()


events = st.lists(st.sampled_from([*KEPT, SECRET]), min_size=1, max_size=8)
places = st.lists(st.integers(0, 1 << 12), max_size=6)


def render(said: list[bytes], newline: bytes) -> list[bytes]:
    return [event.replace(b"\n", newline) + newline * 2 for event in said]


@given(st.lists(events, min_size=1, max_size=4), st.sampled_from([b"\n", b"\r\n"]), places)
def test_the_same_events_come_out_however_they_were_read(
    chunks: list[list[bytes]], newline: bytes, reads: list[int]
) -> None:
    bodies = [b"".join(render(said, newline)) for said in chunks]
    wanted = b"".join(render([event for said in chunks for event in said if event != SECRET], newline))
    wire = b"".join(map(chunk, bodies)) + LAST
    assert unchunk(pass_through(cut(wire, reads))) == wanted
    assert pass_through(cut(b"".join(bodies), reads), is_chunked=False) == wanted


@given(events, st.sampled_from([b"\n", b"\r\n"]), places, places)
def test_a_sender_that_cuts_events_in_two_loses_none_of_the_others(
    said: list[bytes], newline: bytes, chunks: list[int], reads: list[int]
) -> None:
    wire = b"".join(map(chunk, cut(b"".join(render(said, newline)), chunks))) + LAST
    end = newline * 2
    came = unchunk(pass_through(cut(wire, reads))).split(end)[:-1]
    wanted = [event.replace(b"\n", newline) for event in said]
    assert [event for event in came if event != SECRET] == [event for event in wanted if event != SECRET]


def test_a_stream_with_nothing_to_hide_passes_byte_for_byte() -> None:
    reads = [chunk(event + b"\n\n") for event in KEPT if b"secret" not in event]
    reads.append(b"7;extension=1\r\ndata:a\n\r\n")
    trimmer = Trimmer(Secrets(), is_chunked=True)
    assert [trimmer.feed(read) for read in reads[:-1]] == reads[:-1]
    assert not trimmer.is_edited


def test_only_the_read_with_the_event_and_those_after_it_are_made_anew() -> None:
    before, secret, after = (chunk(event + b"\n\n") for event in (KEPT[0], SECRET, KEPT[3]))
    trimmer = Trimmer(Secrets(), is_chunked=True)
    assert trimmer.feed(before + before) == before + before
    assert trimmer.feed(secret) == b""
    assert trimmer.feed(after + LAST) == after
    assert trimmer.finish() == LAST


def test_half_an_event_waits_for_its_other_half() -> None:
    wire = chunk(KEPT[0] + b"\n\n")
    trimmer = Trimmer(Secrets(), is_chunked=True)
    assert trimmer.feed(wire[:9]) == b""
    assert trimmer.is_edited
    assert trimmer.feed(wire[9:]) == wire


def test_what_is_no_chunk_where_one_should_begin_passes_as_it_is() -> None:
    trimmer = Trimmer(Secrets(), is_chunked=True)
    first, second = b"40\r\n\n\n\r\n", b'zz "secret":{"yes"}\n\n\r\n'
    assert trimmer.feed(first) == first
    assert [trimmer.feed(second), trimmer.feed(b"more"), trimmer.finish()] == [second, b"more", b""]


def test_an_event_without_an_end_is_not_held_for_ever() -> None:
    trimmer = Trimmer(Secrets(), is_chunked=False)
    assert trimmer.feed(b"x" * (2 << 20)) == b"x" * (2 << 20)


@pytest.mark.parametrize("is_chunked", [True, False])
def test_a_last_event_without_a_blank_line_is_judged_too(is_chunked: bool) -> None:
    wire = chunk(SECRET) + LAST if is_chunked else SECRET
    assert pass_through([wire], is_chunked=is_chunked) == (LAST if is_chunked else b"")
