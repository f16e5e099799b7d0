"""The end of an answer is known, and how long it was, however it came."""

from hypothesis import given
from hypothesis import strategies as st

from core.http.tail import LONG_BYTES, MOST_BYTES, SHORT_BYTES, Tail

_SIZES = st.one_of(st.integers(0, 200), st.integers(0, 3 * LONG_BYTES))


@given(st.lists(_SIZES, max_size=60))
def test_the_end_is_kept_and_all_is_counted(sizes: list[int]) -> None:
    tail, said = Tail(), b""
    for number, size in enumerate(sizes):
        data = bytes([number % 251]) * size
        tail.keep(data)
        said += data
        assert tail.size_bytes() == len(said)
        assert said.endswith(bytes(tail.recent))
        assert min(len(said), SHORT_BYTES) <= len(tail.recent) <= max(LONG_BYTES, MOST_BYTES)


def test_of_a_long_read_more_is_kept() -> None:
    tail = Tail()
    tail.keep(b"a" * 100_000)
    assert len(tail.recent) == LONG_BYTES
