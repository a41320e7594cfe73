"""The interval of a median: known values, its coverage, and what it does to transformed values."""

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.bench.comparing import find_cut, make_median_interval
from tests.long import examples


@pytest.mark.parametrize(
    ("count", "error", "cut"),
    [
        (5, 0.05, 0), (6, 0.05, 1), (8, 0.05, 1), (9, 0.05, 2), (20, 0.05, 6), (100, 0.05, 40),
        (7, 0.01, 0), (8, 0.01, 1), (11, 0.01, 1), (12, 0.01, 2), (50, 0.01, 16), (5000, 0.05, 2431),
    ],
)  # fmt: skip
def test_the_limits_are_those_of_the_sign_test(count, error, cut):
    assert find_cut(count, error) == cut
    assert make_median_interval(range(1, count + 1), error) == ((cut, count + 1 - cut) if cut else None)


VALUES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60)


@examples(1)
@given(VALUES, st.floats(0.1, 100), st.floats(-1000, 1000), st.randoms())
def test_the_interval_moves_with_the_values_in_any_order_and_less_error_is_wider(
    values, factor, offset, source
):
    interval = make_median_interval(values, 0.05)
    moved = [factor * value + offset for value in values]
    source.shuffle(moved)
    if interval is None:
        assert make_median_interval(moved, 0.05) is None
    else:
        assert make_median_interval(moved, 0.05) == tuple(factor * end + offset for end in interval)
        assert make_median_interval([-value for value in values], 0.05) == (-interval[1], -interval[0])
        assert interval[0] <= statistics.median(values) <= interval[1]
    wide = make_median_interval(values, 0.01)
    assert wide is None or wide[0] <= interval[0] <= interval[1] <= wide[1]
