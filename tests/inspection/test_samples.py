"""Readings of the memory of processes: their cost decides how often they are repeated."""

import os

from hypothesis import given
from hypothesis import strategies as st

from ompbind.inspection.samples import MOST_BYTES, MOST_SHARE, MemoryReading, find_due, read_memory


def reading(at_s, cost_s):
    return MemoryReading(at_s=at_s, cost_s=cost_s, memory=None)


def test_cheap_readings_are_repeated_after_a_second_and_expensive_ones_rarely():
    cheap, expensive = ((0.2, 0.001), (0.0, 1.0))
    for readings, now_s, due in (
        ({}, 0.0, [1, 2]),
        ({1: cheap}, 0.5, [2]),
        ({1: cheap, 2: cheap}, 1.8, [1, 2]),
        ({1: expensive, 2: cheap}, 1499.0, [2]),
        ({1: expensive, 2: cheap}, 1501.0, [1, 2]),
    ):
        known = {pid: reading(*values) for pid, values in readings.items()}
        assert find_due(known, {1: 1, 2: MOST_BYTES, 3: MOST_BYTES + 1}, now_s) == due


@given(costs=st.lists(st.floats(0.0001, 2.0), min_size=1, max_size=5))
def test_all_readings_together_have_a_limit(costs):
    """With a sample each second, the share is below the limit, apart from the first readings."""
    readings, spent_s, seconds = {}, 0.0, 600
    for now_s in range(seconds):
        for pid in find_due(readings, dict.fromkeys(range(len(costs)), 0), float(now_s)):
            readings[pid] = reading(float(now_s), costs[pid])
            spent_s += costs[pid]
    assert spent_s - sum(costs) <= MOST_SHARE * seconds


def test_own_memory_is_read():
    memory = read_memory({}, {os.getpid(): 0})[os.getpid()].memory
    if memory:  # the kernel has NUMA support
        assert sum(size for _, size in memory.anonymous_nodes) > 1 << 20
