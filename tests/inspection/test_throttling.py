"""Throttling: one warning for each cgroup, with the ranks and processes that it concerns."""

import time

import pytest

from ompbind.inspection import read_load
from ompbind.inspection.oversubscription import LoadSample, Streak
from ompbind.machine.sources.linux.cgroup import Throttling
from ompbind.text import Severity
from tests.inspection.test_judge import process
from tests.inspection.test_rank_processes import OWN, inspect, rank


def throttled(cgroup="a", periods=5, throttled_periods=3, throttled_s=0.25):
    return Throttling(
        cgroup=cgroup, periods=periods, throttled_periods=throttled_periods, throttled_s=throttled_s
    )


GROUPS = inspect(
    *OWN, rank(0, "0-1", pid=12), rank(1, "2-3", pid=13), process("0-3", pid=20, name="other", parent=1)
).groups


@pytest.mark.parametrize(
    ("measured", "issues"),
    [
        ([], []),
        ([throttled(throttled_periods=0)] * 3, []),
        (
            [throttled()] * 2,
            [
                "the CPU quota of the cgroup throttled ranks 0-1 of run job in 3 of 5 periods "
                "(0.25 s, summed over CPUs): use fewer ranks or threads, or raise the quota"
            ],
        ),
        ([throttled()] * 3, ["ranks 0-1 of run job and process 20 (other) in 3 of 5 periods"]),
        (
            [throttled(), throttled(throttled_periods=0), throttled("b", periods=9)],
            ["throttled rank 0 of run job in 3 of 5", "throttled process 20 (other) in 3 of 9"],
        ),
    ],
)
def test_each_cgroup_has_one_warning(measured, issues):
    found = list(read_load.find_throttled(zip(GROUPS, measured, strict=False)))
    assert all(issue.code == "throttled" and issue.severity is Severity.WARNING for issue in found)
    assert len(found) == len(issues)
    assert all(text in issue.text for issue, text in zip(found, issues, strict=True))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0004, "0.4 ms"), (0.0123, "12.3 ms"), (0.0999, "99.9 ms"), (0.1, "0.10 s"), (2.0, "2.00 s")],
)
def test_short_times_are_in_milliseconds(seconds, text):
    assert str(throttled(throttled_s=seconds)) == f"3 of 5 periods ({text}, summed over CPUs)"


def test_throttling_between_two_samples_needs_both():
    first = LoadSample(at_s=0, processes=(), throttling=throttled())
    later = LoadSample(at_s=1, processes=(), throttling=throttled(periods=9, throttled_periods=3))
    assert later.throttled_since(first) == throttled(periods=4, throttled_periods=0, throttled_s=0.0)
    assert later.throttled_since(None) is None
    assert later.throttled_since(first.replace(throttling=None)) is None
    assert first.replace(throttling=None).throttled_since(first) is None


@pytest.mark.parametrize(("last", "expected"), [(None, False), (0, False), (1, True)])
def test_whether_a_cgroup_was_throttled_before(last, expected):
    sample = LoadSample(
        at_s=time.monotonic(), processes=(), throttling=throttled(throttled_periods=last or 0)
    )
    streak = Streak(last=None if last is None else sample)
    assert read_load.was_throttled({(None, None, 1): streak}) is expected
