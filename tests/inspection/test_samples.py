"""Readings of the memory of processes: their cost decides how often they are repeated."""

from hypothesis import given
from hypothesis import strategies as st

from ompbind.inspection.samples import MOST_SHARE, MemoryReading, find_due


def reading(at_s, cost_s):
    return MemoryReading(at_s=at_s, cost_s=cost_s, memory=None)


@given(costs=st.lists(st.floats(0.0001, 2.0), min_size=1, max_size=5))
def test_all_readings_together_have_a_limit(costs):
    """With a sample each second, the share is below the limit, apart from the first readings."""
    readings, spent_s, seconds = {}, 0.0, 600
    for now_s in range(seconds):
        for pid in find_due(readings, dict.fromkeys(range(len(costs)), 0), float(now_s)):
            readings[pid] = reading(float(now_s), costs[pid])
            spent_s += costs[pid]
    assert spent_s - sum(costs) <= MOST_SHARE * seconds
