"""Axes: positions are within the axis and in order, ticks are round, few and on the axis."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.report.bench.pictures import list_ticks, make_ratio_axis, make_value_axis

ratios = st.lists(st.floats(1e-6, 1e6), max_size=20)
values = st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=20)


def check(axis, shown, most):
    places = [axis.find(value) for value in sorted(shown)]
    assert places == sorted(places)
    assert all(0 <= place <= axis.length for place in places)
    ticks = list_ticks(axis, most)
    assert len(ticks) <= most
    assert list(ticks) == sorted(set(ticks))
    assert all(axis.low <= tick <= axis.high for tick in ticks)


@given(ratios, st.integers(1, 500), st.integers(2, 9))
def test_ratios(shown, length, most):
    check(make_ratio_axis(shown, length), shown, most)


@given(values, st.integers(1, 500), st.integers(2, 9), st.booleans())
def test_values(shown, length, most, from_zero):
    check(make_value_axis(shown, length, from_zero=from_zero), shown, most)


def test_equal_factors_have_equal_lengths():
    axis = make_ratio_axis([0.5, 2.0], 1000)
    assert axis.find(1.0) - axis.find(0.5) == axis.find(2.0) - axis.find(1.0)


def test_noise_does_not_look_large():
    axis = make_ratio_axis([0.9999, 1.0001], 1000)
    assert axis.find(1.0001) - axis.find(0.9999) < 15


@pytest.mark.parametrize(
    ("shown", "ticks"),
    [
        ([0.9, 1.2], (0.9, 0.95, 1.0, 1.05, 1.1, 1.15, 1.2)),
        ([0.1, 10.0], (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)),
        ([0.001, 1000.0], (0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)),
    ],
)
def test_ticks_of_ratios_are_round(shown, ticks):
    assert tuple(list_ticks(make_ratio_axis(shown, 300), 7)) == ticks


def test_ticks_of_values_are_round():
    assert tuple(list_ticks(make_value_axis([0.0, 3.7], 300, from_zero=True), 6)) == (0.0, 1.0, 2.0, 3.0)
