"""Sums of usage: over which dimensions, and that nothing is lost in them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.usage import COUNTS, DIMENSIONS, UsageRow, day_of, sum_rows

names = st.sampled_from(["", "a", "b"])
counts = st.integers(0, 1 << 40)
usage_rows = st.builds(UsageRow, day=names, key=names, model=names, **dict.fromkeys(COUNTS, counts))


@given(st.lists(usage_rows, max_size=8), st.sets(st.sampled_from(DIMENSIONS)))
def test_every_way_to_sum_up_has_the_same_total(rows: list[UsageRow], by: set[str]) -> None:
    sums = sum_rows(rows, by)
    for name in COUNTS:
        assert sum(getattr(row, name) for row in sums) == sum(getattr(row, name) for row in rows)
    places = [tuple(getattr(row, name) for name in DIMENSIONS) for row in sums]
    assert places == sorted(set(places))
    assert all(getattr(row, name) == "" for row in sums for name in set(DIMENSIONS) - by)


@pytest.mark.parametrize(
    ("wall_s", "day"), [(0.0, "1970-01-01"), (86399.9, "1970-01-01"), (86400.0, "1970-01-02"), (1.8e9, "2027-01-15")]
)
def test_a_day_is_one_of_utc(wall_s: float, day: str) -> None:
    assert day_of(wall_s).isoformat() == day
