"""Sessions compared with each other, and the intervals of medians."""

import re

import pytest

from ompbind.bench.compare_sessions import compare_sessions, render_failure, render_sessions
from ompbind.bench.comparing import find_cut, make_median_interval
from ompbind.bench.records import Metric, Status
from ompbind.errors import RequestError
from ompbind.report.text import Screen
from tests.bench.sessions import make_candidate, make_session, make_timed_run

RATE = Metric(name="tokens/s", pattern="(.*)", higher=True)


def make(values, status=Status.OK, **fields):
    """A session with these first metrics by candidate, after a warm-up that must not count."""
    runs = [
        make_timed_run(name, 0, value, round=number, status=status)
        for name, found in values.items()
        for number, value in enumerate((1000.0, *found))
    ]
    return make_session(runs=tuple(runs), **fields)


def compare(*sessions):
    return {change.candidate: change for change in compare_sessions(sessions)}


def test_a_candidate_that_takes_longer_has_a_ratio_below_1_unless_higher_is_better():
    times = {"default": [1.0] * 8}, {"default": [2.0] * 8}
    change = compare(*map(make, times))["default"]
    assert (change.medians, change.runs, change.ratio) == ((1.0, 2.0), (8, 8), 0.5)
    assert (change.is_slower(0.9), change.is_slower(1.1)) == (True, False)
    change = compare(*(make(each, metrics=(RATE,)) for each in times))["default"]
    assert (change.ratio, change.is_slower(0.0)) == (2.0, False)
    with pytest.raises(RequestError, match="wall time, tokens/s"):
        compare(make({}), make({}, metrics=(RATE,)))


def test_what_gives_no_interval_or_ratio():
    before = make({"default": [1.0] * 8})
    change = compare(before, make({"default": [2.0] * 3}))["default"]
    assert (change.ratio, change.interval, change.is_slower(0.05)) == (0.5, None, False)
    for values in ([], [0.0, 1.0], [-1.0, 1.0]):
        change = compare(before, make({"default": values}))["default"]
        assert (change.ratio, change.interval, change.has_failed) == (None, None, not values)
    change = compare(before, make({"default": [1.0] * 8}, Status.INVALID))["default"]
    assert (change.runs, change.has_failed) == ((8, 0), True), "only valid runs count"


def test_several_sessions_and_candidates_that_only_some_have_are_compared_in_words():
    values = [
        {"unbound": [1.0] * 8, "smt=2": [2.0] * 8, "bind=core": [1.0] * 8, "bind=exact": [1.0] * 2},
        {"unbound": [3.0] * 8, "default": [2.0]},
        {"unbound": [2.0] * 8, "smt=2": [1.0] * 8, "bind=exact": [1.0] * 2, "bind=rank": [1.0]},
    ]
    sessions = [make(each, candidates=tuple(map(make_candidate, each))) for each in values]
    found = compare(*sessions)
    assert [*found] == ["unbound", "smt=2", "bind=core", "bind=exact", "default", "bind=rank"]
    assert (found["unbound"].medians, found["unbound"].ratio) == ((1.0, 3.0, 2.0), 0.5)
    assert found["default"].medians == (None, 2.0, None)
    text = render_sessions(sessions, [*found.values()], Screen(width=80))
    words = ("slower", "faster", "no valid run", "too few runs", "never valid", "new")
    for name, result in zip(found, words, strict=True):
        assert re.search(rf"^{name} .* {result}$", text, re.M)
    assert "session 3 compared with session 1; above 1, session 3 is faster" in text
    assert "differs: candidates: unbound; smt=2; bind=core; bind=exact, now unbound; smt=2;" in text
    assert max(map(len, text.splitlines())) <= 80


def test_failures_name_the_candidate_and_the_numbers():
    before = make({"default": [1.0] * 9, "smt=2": [1.0] * 9, "unbound": [1.0] * 9})
    now = make({"default": [1.1] * 8 + [1.25], "smt=2": [1.03] * 9})
    found = compare(before, now)
    assert [(name, each.is_slower(0.05), each.has_failed) for name, each in found.items()] == [
        ("unbound", False, True), ("default", True, False), ("smt=2", False, False),
    ]  # fmt: skip
    assert "unbound has no valid run" in render_failure(found["unbound"], 0.05)
    slower = "default has a ratio of 0.91, interval 0.80 to 0.91; the limit is 0.952"
    assert slower in render_failure(found["default"], 0.05)
    assert not found["default"].is_slower(0.11)
    assert not any(each.has_failed or each.is_slower(0.05) for each in compare(now, before).values())


@pytest.mark.parametrize(("count", "error", "cut"), [
    (5, 0.05, 0), (6, 0.05, 1), (8, 0.05, 1), (9, 0.05, 2), (20, 0.05, 6), (100, 0.05, 40), (7, 0.01, 0),
    (8, 0.01, 1), (11, 0.01, 1), (12, 0.01, 2), (50, 0.01, 16), (5000, 0.05, 2431),
])  # fmt: skip
def test_the_limits_are_those_of_the_sign_test(count, error, cut):
    assert find_cut(count, error) == cut
    assert make_median_interval(range(1, count + 1), error) == ((cut, count + 1 - cut) if cut else None)
