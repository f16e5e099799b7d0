"""The ends of an answer are known, and how long it was, however it came."""

from hypothesis import given
from hypothesis import strategies as st

from core.http.excerpt import LONG_BYTES, MOST_READS, SHORT_BYTES, Excerpt

_SIZES = st.one_of(st.integers(0, 200), st.integers(0, 3 * LONG_BYTES))


@given(st.lists(_SIZES, max_size=60))
def test_both_ends_are_kept_and_all_is_counted(sizes: list[int]) -> None:
    excerpt, said = Excerpt(), b""
    for number, size in enumerate(sizes):
        data = bytes([number % 251]) * size
        excerpt.keep(data)
        said += data
        assert excerpt.size_bytes == len(said)
        assert said.endswith(excerpt.end)
        assert (
            min(len(said), SHORT_BYTES) <= len(excerpt.end) <= max(LONG_BYTES, SHORT_BYTES) + MOST_READS * SHORT_BYTES
        )
        assert said.startswith(excerpt.begin)
        assert excerpt.end == said or excerpt.begin == said[:SHORT_BYTES]


def test_of_a_long_read_more_is_kept() -> None:
    excerpt = Excerpt()
    excerpt.keep(b"a" * 100_000)
    assert len(excerpt.end) == LONG_BYTES


def test_what_is_kept_of_many_short_reads_stays_small() -> None:
    excerpt = Excerpt()
    for _ in range(10_000):
        excerpt.keep(b"a" * 200)
        assert len(excerpt.reads) <= MOST_READS
    assert len(excerpt.end) <= SHORT_BYTES + MOST_READS * 200
