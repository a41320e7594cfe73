"""The interval of a median: known values, its coverage, and what it does to transformed values."""

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.bench.comparing import find_cut, find_min_count, make_median_interval
from tests.long import examples


@pytest.mark.parametrize(
    ("count", "error", "cut"),
    [
        (5, 0.05, 0),
        (6, 0.05, 1),
        (8, 0.05, 1),
        (9, 0.05, 2),
        (12, 0.05, 3),
        (20, 0.05, 6),
        (25, 0.05, 8),
        (50, 0.05, 18),
        (100, 0.05, 40),
        (7, 0.01, 0),
        (8, 0.01, 1),
        (9, 0.01, 1),
        (11, 0.01, 1),
        (12, 0.01, 2),
        (20, 0.01, 4),
        (21, 0.01, 5),
        (31, 0.01, 8),
        (50, 0.01, 16),
        (101, 0.01, 38),
        (5000, 0.05, 2431),
    ],
)
def test_the_limits_are_those_of_the_sign_test(count, error, cut):
    assert find_cut(count, error) == cut
    interval = make_median_interval(range(1, count + 1), error)
    assert interval == ((cut, count + 1 - cut) if cut else None)


@pytest.mark.parametrize(
    ("error", "count"), [(0.5, 2), (0.05, 6), (0.01, 8), (0.05 / 25, 10), (0.05 / 40, 11)]
)
def test_the_smallest_number_of_values(error, count):
    assert find_min_count(error) == count
    assert make_median_interval(range(count - 1), error) is None
    assert make_median_interval(range(count), error) == (0, count - 1)


@pytest.mark.parametrize(("count", "often"), [(8, 0.992), (9, 0.996), (20, 0.997), (21, 0.993)])
def test_the_interval_contains_the_median_with_its_confidence(count, often):
    """The numbers are exponentially distributed, so their median is ln 2."""
    draw = random.Random(count)
    found = [make_median_interval([draw.expovariate(1) for _ in range(count)], 0.01) for _ in range(4000)]
    inside = statistics.mean(low <= math.log(2) <= high for low, high in found)
    assert inside == pytest.approx(often, abs=0.003)


def draw_normal(source):
    return source.gauss(0, 1), 0.0


def draw_skewed(source):
    return source.expovariate(1), math.log(2)


def draw_two_modes(source):
    """Most of the values are in the upper mode, whose lowest value is the median."""
    return (0.0 if source.random() < 0.5 else 1.0) + 0.1 * source.random(), 0.1


@pytest.mark.parametrize("draw", [draw_normal, draw_skewed, draw_two_modes])
@pytest.mark.parametrize(("count", "error"), [(8, 0.05), (27, 0.05), (40, 0.01)])
def test_an_interval_misses_the_median_at_most_as_often_as_permitted(draw, count, error):
    source = random.Random(7)
    missed = 0
    for _ in range(2000):
        pairs = [draw(source) for _ in range(count)]
        low, high = make_median_interval([value for value, _ in pairs], error)
        missed += not low <= pairs[0][1] <= high
    permitted = 2000 * error
    assert missed <= permitted + 3 * permitted**0.5
    assert missed >= 1, "an interval that never misses is too wide"


VALUES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60)


@examples(1)
@given(VALUES, st.sampled_from([0.2, 0.05, 0.01]), st.floats(0.1, 100), st.floats(-1000, 1000))
def test_the_interval_moves_with_the_values(values, error, factor, offset):
    interval = make_median_interval(values, error)
    moved = make_median_interval([factor * value + offset for value in values], error)
    mirrored = make_median_interval([-value for value in values], error)
    if interval is None:
        assert moved is None
        assert mirrored is None
    else:
        assert moved == tuple(factor * end + offset for end in interval)
        assert mirrored == (-interval[1], -interval[0])
        assert interval[0] <= statistics.median(values) <= interval[1]


@examples(1)
@given(VALUES, st.randoms())
def test_the_order_of_values_does_not_matter_and_less_error_is_wider(values, source):
    shuffled = list(values)
    source.shuffle(shuffled)
    assert make_median_interval(values, 0.05) == make_median_interval(shuffled, 0.05)
    wide, narrow = make_median_interval(values, 0.01), make_median_interval(values, 0.1)
    assert wide is None or wide[0] <= narrow[0] <= narrow[1] <= wide[1]
