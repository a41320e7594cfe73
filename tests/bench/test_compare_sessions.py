"""Sessions compared with each other, and the intervals of medians."""

import pytest

from ompbind.bench.compare_sessions import compare_sessions, render_failure
from ompbind.bench.comparing import find_cut, make_median_interval
from ompbind.bench.records import Metric, Run, Status
from ompbind.errors import RequestError
from tests.bench.fakes import make_session


def make_runs(values, **changes):
    """Runs with these first metrics by candidate, after a warm-up that must not count."""
    return tuple(
        Run(
            candidate=name,
            number=0,
            round=number,
            started=0.0,
            values=(value,),
        ).replace(**changes)
        for name, found in values.items()
        for number, value in enumerate((1000.0, *found))
    )


def compare(before, now, **changes):
    sessions = [make_session(runs=make_runs(values), **changes) for values in (before, now)]
    return {change.candidate: change for change in compare_sessions(sessions)}


def test_a_candidate_that_takes_longer_has_a_ratio_below_1_unless_higher_is_better():
    times = {"default": [1.0] * 8}, {"default": [2.0] * 8}
    change = compare(*times)["default"]
    assert (change.medians, change.runs, change.ratio) == ((1.0, 2.0), (8, 8), 0.5)
    assert (change.is_slower(0.9), change.is_slower(1.1)) == (True, False)
    metrics = (Metric(name="tokens/s", pattern="(.*)", higher=True),)
    change = compare(*times, metrics=metrics)["default"]
    assert (change.ratio, change.is_slower(0.0)) == (2.0, False)


def test_what_gives_no_interval_or_ratio():
    change = compare({"default": [1.0] * 3}, {"default": [2.0] * 3})["default"]
    assert (change.ratio, change.interval, change.is_slower(0.05)) == (0.5, None, False)
    assert compare({"default": [1.0] * 9}, {"default": [2.0] * 6})["default"].interval is not None
    for values in ([], [0.0, 1.0], [-1.0, 1.0]):
        change = compare({"default": [1.0] * 8}, {"default": values})["default"]
        assert (change.ratio, change.interval, change.has_failed) == (None, None, not values)


def test_only_valid_runs_count():
    before = make_session(runs=make_runs({"default": [1.0] * 8}))
    now = make_session(runs=make_runs({"default": [1.0] * 8}, status=Status.INVALID))
    change = compare_sessions([before, now])[1]
    assert (change.runs, change.has_failed) == ((8, 0), True)


def test_several_sessions_and_candidates_that_only_some_have():
    values = [{"unbound": [1.0] * 5}, {"unbound": [3.0] * 5, "default": [2.0]}, {"unbound": [2.0] * 5}]
    sessions = [make_session(runs=make_runs(each)) for each in values]
    sessions[0] = sessions[0].replace(candidates=sessions[0].candidates[:1])
    sessions[1] = sessions[1].replace(candidates=sessions[1].candidates[::-1])
    found = compare_sessions(sessions)
    assert [change.candidate for change in found] == ["unbound", "smt=2", "default"]
    assert (found[0].medians, found[0].ratio) == ((1.0, 3.0, 2.0), 0.5)
    assert found[2].medians == (None, 2.0, None)


def test_other_metrics_are_not_compared():
    sessions = [make_session(), make_session(metrics=(Metric(name="tokens/s", pattern="(.)", higher=True),))]
    with pytest.raises(RequestError, match="wall time, tokens/s"):
        compare_sessions(sessions)


def test_failures_name_the_candidate_and_the_numbers():
    before = {"default": [1.0] * 9, "smt=2": [1.0] * 9, "unbound": [1.0] * 9}
    now = {"default": [1.1] * 8 + [1.25], "smt=2": [1.03] * 9}
    found = compare(before, now)
    assert [found[name].is_slower(0.05) for name in before] == [True, False, False]
    assert [found[name].has_failed for name in before] == [False, False, True]
    assert "unbound has no valid run" in render_failure(found["unbound"], 0.05)
    slower = "default has a ratio of 0.91, interval 0.80 to 0.91; the limit is 0.952"
    assert slower in render_failure(found["default"], 0.05)
    assert not found["default"].is_slower(0.11)
    found = compare(now, before)
    assert not any(change.has_failed or change.is_slower(0.05) for change in found.values())


@pytest.mark.parametrize(("count", "error", "cut"), [
    (5, 0.05, 0), (6, 0.05, 1), (8, 0.05, 1), (9, 0.05, 2), (20, 0.05, 6), (100, 0.05, 40), (7, 0.01, 0),
    (8, 0.01, 1), (11, 0.01, 1), (12, 0.01, 2), (50, 0.01, 16), (5000, 0.05, 2431),
])  # fmt: skip
def test_the_limits_are_those_of_the_sign_test(count, error, cut):
    assert find_cut(count, error) == cut
    assert make_median_interval(range(1, count + 1), error) == ((cut, count + 1 - cut) if cut else None)
