"""What a client says of its trace, and what is made of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.tracing.context import Parent, read_parent, write_parent

TRACE, SPAN = 0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7
WORDS = f"00-{TRACE:032x}-{SPAN:016x}-01".encode()
LONG = b",".join(b"k%d=%s" % (number, b"v" * 100) for number in range(8))
NONSENSE = Parent(0, 0, False)

TABLE: list[tuple[str, list[tuple[bytes, bytes]], Parent | None]] = [
    ("nothing", [(b"host", b"x")], None),
    ("a trace", [(b"traceparent", WORDS)], Parent(TRACE, SPAN, True)),
    ("spaces around", [(b"traceparent", b" " + WORDS + b" ")], Parent(TRACE, SPAN, True)),
    ("one that is not recorded", [(b"traceparent", WORDS[:-1] + b"0")], Parent(TRACE, SPAN, False)),
    ("other flags", [(b"traceparent", WORDS[:-2] + b"fe")], Parent(TRACE, SPAN, False)),
    ("with a state", [(b"traceparent", WORDS), (b"tracestate", b"a=1")], Parent(TRACE, SPAN, True, "a=1")),
    (
        "states in two fields",
        [(b"tracestate", b"a=1"), (b"traceparent", WORDS), (b"tracestate", b"b=2")],
        Parent(TRACE, SPAN, True, "a=1,b=2"),
    ),
    (
        "a state that is too long, cut between members",
        [(b"traceparent", WORDS), (b"tracestate", LONG)],
        Parent(TRACE, SPAN, True, ",".join(LONG.decode().split(",")[:4])),
    ),
    (
        "a state of one endless member",
        [(b"traceparent", WORDS), (b"tracestate", b"k=" + b"v" * 600)],
        Parent(TRACE, SPAN, True),
    ),
    (
        "a state that is no text",
        [(b"traceparent", WORDS), (b"tracestate", b"a=\xff")],
        Parent(TRACE, SPAN, True),
    ),
    ("a later version", [(b"traceparent", b"01" + WORDS[2:] + b"-more")], Parent(TRACE, SPAN, True)),
    ("more than version 0 has", [(b"traceparent", WORDS + b"-more")], NONSENSE),
    ("no version", [(b"traceparent", b"ff" + WORDS[2:])], NONSENSE),
    ("upper case", [(b"traceparent", WORDS.upper())], NONSENSE),
    ("no trace", [(b"traceparent", b"00-" + b"0" * 32 + WORDS[35:])], NONSENSE),
    ("no span", [(b"traceparent", WORDS[:36] + b"0" * 16 + WORDS[52:])], NONSENSE),
    ("empty", [(b"traceparent", b"")], NONSENSE),
    ("two of them", [(b"traceparent", WORDS), (b"traceparent", WORDS)], NONSENSE),
    ("a state alone", [(b"tracestate", b"a=1")], NONSENSE),
]


@pytest.mark.parametrize(("headers", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_a_client_names_its_trace(headers: list[tuple[bytes, bytes]], expected: Parent | None) -> None:
    assert read_parent(headers) == expected


@given(st.lists(st.tuples(st.sampled_from([b"traceparent", b"tracestate", b"x"]), st.binary(max_size=80))))
def test_anything_at_all_is_a_trace_or_none(headers: list[tuple[bytes, bytes]]) -> None:
    found = read_parent(headers)
    assert found is None or found.trace_id == 0 or 0 < found.trace_id < 1 << 128


@given(st.integers(1, (1 << 128) - 1), st.integers(1, (1 << 64) - 1), st.booleans())
def test_what_is_written_is_read_again(trace_id: int, span_id: int, is_sampled: bool) -> None:
    name, _, value = write_parent(trace_id, span_id, is_sampled=is_sampled).removesuffix(b"\r\n").partition(b": ")
    assert read_parent([(name, value)]) == Parent(trace_id, span_id, is_sampled)
