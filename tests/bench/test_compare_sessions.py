"""Sessions compared with each other: ratios, intervals, and which candidates are slower."""

import math
import random
from itertools import combinations

import pytest

from ompbind.bench.compare_sessions import compare_sessions, find_failures, find_mann_whitney_cut
from ompbind.bench.records import Metric, Phase, Run, Status
from ompbind.errors import RequestError
from tests.bench.fakes import NAMES, make_session


def make_runs(values, **changes):
    """Runs with these first metrics by candidate, after a warm-up that must not count."""
    runs = []
    for name, found in values.items():
        for number, value in enumerate((1000.0, *found)):
            phase = Phase.CHOICE if number else Phase.WARM_UP
            run = Run(
                candidate=name, number=len(runs), phase=phase, round=number, started=0.0, values=(value,)
            )
            runs.append(run.replace(**changes))
    return tuple(runs)


def compare(before, now, **changes):
    sessions = [make_session(runs=make_runs(values), **changes) for values in (before, now)]
    return {change.candidate: change for change in compare_sessions(sessions).changes}


@pytest.mark.parametrize(
    ("first", "second", "error", "cut"),
    [  # tables of the critical values of U, two-sided, plus 1
        (3, 3, 0.05, 0), (4, 4, 0.05, 1), (5, 5, 0.05, 3), (8, 12, 0.05, 23), (10, 10, 0.05, 24),
        (20, 20, 0.05, 128), (10, 10, 0.01, 17), (20, 20, 0.01, 106), (1, 30, 0.05, 0), (1, 45, 0.05, 1),
    ],
)  # fmt: skip
def test_limits_are_those_of_the_tables(first, second, error, cut):
    assert find_mann_whitney_cut(first, second, error) == cut


def count_directly(first, second, error):
    """Count all orders of two samples by their statistic."""
    found = [sum(chosen) - first * (first - 1) // 2 for chosen in combinations(range(first + second), first)]
    return sum(1 for cut in range(first * second) if 2 * sum(u <= cut for u in found) / len(found) <= error)


@pytest.mark.parametrize(("first", "second"), [(2, 9), (4, 6), (7, 3), (6, 6)])
def test_the_distribution_is_exact(first, second):
    for error in (0.2, 0.05, 0.01):
        assert find_mann_whitney_cut(first, second, error) == count_directly(first, second, error)


def test_the_normal_distribution_continues_the_exact_one():
    exact, normal = find_mann_whitney_cut(25, 25, 0.05), find_mann_whitney_cut(25, 26, 0.05)
    assert (exact, normal) == (212, 220)


def test_a_candidate_that_takes_longer_has_a_ratio_below_1():
    change = compare({"default": [1.0] * 8}, {"default": [2.0] * 8})["default"]
    assert (change.medians, change.runs, change.ratio) == ((1.0, 2.0), (8, 8), 0.5)
    assert change.is_slower(0.9)
    assert not change.is_slower(1.1)


def test_with_higher_metrics_a_larger_value_is_better():
    metrics = (Metric(name="tokens/s", pattern="(.*)", higher=True),)
    change = compare({"default": [1.0] * 8}, {"default": [2.0] * 8}, metrics=metrics)["default"]
    assert (change.ratio, change.is_slower(0.0)) == (2.0, False)


def test_too_few_runs_have_a_ratio_without_an_interval():
    change = compare({"default": [1.0] * 3}, {"default": [2.0] * 3})["default"]
    assert (change.ratio, change.interval, change.is_slower(0.05)) == (0.5, None, False)


@pytest.mark.parametrize("values", [[], [0.0, 1.0], [-1.0, 1.0]])
def test_values_without_a_ratio(values):
    change = compare({"default": [1.0] * 8}, {"default": values})["default"]
    assert (change.ratio, change.interval) == (None, None)
    assert change.has_failed == (not values)


def test_only_valid_runs_count():
    before = make_session(runs=make_runs({"default": [1.0] * 8}))
    now = make_session(runs=make_runs({"default": [1.0] * 8}, status=Status.INVALID))
    change = compare_sessions([before, now]).changes[1]
    assert (change.runs, change.has_failed) == ((8, 0), True)


def test_several_sessions_and_candidates_that_only_some_have():
    values = [{"unbound": [1.0] * 5}, {"unbound": [3.0] * 5, "default": [2.0]}, {"unbound": [2.0] * 5}]
    sessions = [make_session(runs=make_runs(each)) for each in values]
    sessions[0] = sessions[0].replace(candidates=sessions[0].candidates[:1])
    sessions[1] = sessions[1].replace(candidates=sessions[1].candidates[::-1])
    found = compare_sessions(sessions)
    assert [change.candidate for change in found.changes] == ["unbound", "smt=2", "default"]
    assert found.changes[0].medians == (1.0, 3.0, 2.0)
    assert found.changes[0].ratio == 0.5
    assert found.changes[2].medians == (None, 2.0, None)
    texts = [difference.text for difference in found.differences]
    assert texts == ["candidates: unbound, now unbound; default; smt=2"]


def test_other_metrics_are_not_compared():
    sessions = [make_session(), make_session(metrics=(Metric(name="tokens/s", pattern="(.)", higher=True),))]
    with pytest.raises(RequestError, match="the sessions do not measure the same: wall time, tokens/s"):
        compare_sessions(sessions)


def test_failures_name_the_candidate_and_the_numbers():
    before = {"default": [1.0] * 9, "smt=2": [1.0] * 9, "unbound": [1.0] * 9}
    now = {"default": [1.1, 1.1, 1.1, 1.1, 1.1, 1.25, 1.25, 1.25, 1.25], "smt=2": [1.03] * 9}
    sessions = [make_session(runs=make_runs(values)) for values in (before, now)]
    assert find_failures(compare_sessions(sessions), 0.05) == (
        "candidate unbound has no valid run in the last session",
        "candidate default is slower by 10.0% in the last session (10.0% to 25.0%; the limit is 5.0%)",
    )
    assert len(find_failures(compare_sessions(sessions), 0.11)) == 1
    assert find_failures(compare_sessions(sessions[::-1]), 0.05) == ()


def simulate(chosen, factor):
    """Two sessions with 5 % noise and a burst in a tenth of the runs; the second is slower by a factor."""

    def draw(middle):
        return middle * math.exp(chosen.gauss(0, 0.05)) * (1.5 if chosen.random() < 0.1 else 1)

    return (
        {name: [draw(2.0) for _ in range(12)] for name in NAMES},
        {name: [draw(2.0 * factor) for _ in range(9)] for name in NAMES},
    )


def test_few_equal_sessions_look_slower_and_most_slower_sessions_are_found():
    chosen = random.Random(5)
    alarms = dict.fromkeys((1.0, 1.05, 1.2), 0)
    for factor in alarms:
        for _ in range(200):
            before, now = simulate(chosen, factor)
            alarms[factor] += any(change.is_slower(0.05) for change in compare(before, now).values())
    assert alarms[1.0] <= 2
    assert alarms[1.05] <= 12
    assert alarms[1.2] >= 180
