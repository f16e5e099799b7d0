"""The trace that a request belongs to, as its client says it in `traceparent` and `tracestate` (W3C). Pure."""

import re
from collections.abc import Iterable
from typing import NamedTuple

PARENT = b"traceparent"
STATE = b"tracestate"

_LONGEST_STATE = 512
"""Characters of a `tracestate` that spans carry; the standard asks for no more. Engines get it whole."""
_WORDS = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)


class Parent(NamedTuple):
    """The span that a request is part of."""

    trace_id: int
    """0: the client said something, and it is no trace."""
    span_id: int
    is_sampled: bool
    """Whether its caller records it."""
    state: str = ""


_NONSENSE = Parent(0, 0, False)


def read_parent(headers: Iterable[tuple[bytes, bytes]]) -> Parent | None:
    """The trace in these fields (names in lower case); None where there is no word of any."""
    found: bytes | None = None
    states: list[bytes] = []
    for name, value in headers:
        if name == PARENT:
            if found is not None:
                return _NONSENSE
            found = value
        elif name == STATE:
            states.append(value)
    if found is None:
        # Without its parent a state belongs to nothing, and must not go on.
        return _NONSENSE if states else None
    words = _WORDS.fullmatch(found.strip())
    if words is None or words[1] == b"ff" or (words[1] == b"00" and words[5] is not None):
        return _NONSENSE
    trace_id, span_id = int(words[2], 16), int(words[3], 16)
    if not trace_id or not span_id:
        return _NONSENSE
    return Parent(trace_id, span_id, bool(int(words[4], 16) & 1), _cut(states))


def write_parent(trace_id: int, span_id: int, *, is_sampled: bool) -> bytes:
    """The header line for whom we ask, with its line end."""
    return b"traceparent: 00-%032x-%016x-%02x\r\n" % (trace_id, span_id, is_sampled)


def _cut(states: list[bytes]) -> str:
    """All members, or as many of the first ones as there is room for."""
    text = b",".join(states).decode("latin-1").strip()
    if not text.isascii() or not text.isprintable():
        return ""
    return text if len(text) <= _LONGEST_STATE else text[: max(text.rfind(",", 0, _LONGEST_STATE + 1), 0)].strip()
