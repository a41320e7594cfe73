"""Remarks on simulated values: what they find, and how often they find something in normal noise."""

import math
from random import Random

import pytest

from benchmarks.decision import make_candidates, make_session
from ompbind.bench.decision import conclude
from ompbind.bench.records import Conditions, Metric, Phase, Rules, Run, Status, Verification
from ompbind.bench.remarks import find_modes, find_outliers, find_slow_start, find_trend
from tests.long import LONG

MATTERS = math.log1p(0.02)
FINDERS = (find_outliers, find_slow_start, find_trend, find_modes)


def make_noise(count, seed, deviation=0.05):
    source = Random(seed)
    return [source.gauss(0, deviation) for _ in range(count)]


@pytest.mark.parametrize("count", [8, 40, 135])
@pytest.mark.parametrize("find", FINDERS)
def test_at_most_5_percent_of_normal_series_have_a_remark(find, count):
    series = 1000 if LONG else 100
    found = sum(bool(find(make_noise(count, seed), MATTERS)) for seed in range(series))
    assert found <= 0.05 * series


@pytest.mark.parametrize("find", FINDERS)
@pytest.mark.parametrize("logs", [[], [0.0], [0.0] * 40, [0.0, 0.001] * 20])
def test_constant_and_short_series_have_no_remark(find, logs):
    assert not find(logs, MATTERS)


def test_outliers_are_no_mode():
    logs = make_noise(40, 1, 0.02)
    logs[3] = logs[30] = 0.5
    assert find_modes(logs, MATTERS) is None
    assert find_outliers(logs, MATTERS) == pytest.approx([0.5, 0.5], abs=0.02)


QUIET = [1.0 + 0.001 * (number % 3) for number in range(12)]


def make_runs(times=QUIET, *, candidates=2, **fields):
    """A session in which all candidates take the same times; fields are functions of a name and a number."""
    runs = []
    for number, time in enumerate(times, 1):
        for candidate in make_candidates(candidates):
            chosen = {key: value(candidate.name, number) for key, value in fields.items()}
            known = {
                "phase": Phase.CONFIRMATION if candidates == 2 else Phase.CHOICE,
                "values": (time,),
                "wall_s": (time,),
            }
            known |= {"candidate": candidate.name, "number": len(runs), "round": number, "started": 0.0}
            runs.append(Run(**known | chosen))
    return make_session(make_candidates(candidates), Rules()).replace(runs=tuple(runs))


def remarks(session):
    return {(each.code, each.candidate): each.text for each in conclude(session).remarks}


def often(name, value, other):
    """A field that has a value in three runs of a candidate."""
    return lambda candidate, number: value if candidate == name and number % 4 == 1 else other


def met(name, other=None, **fields):
    return {"conditions": often(name, Conditions(**fields), other or Conditions())}


def once(name, at, value):
    return {"values": lambda own, number: (value if own == name and number in at else 1 + number % 3 / 100,)}


@pytest.mark.parametrize(
    ("fields", "code", "facts"),
    [
        (met("default", throttled_s=0.25, throttled_periods=3), "throttled", "3 of 24 runs, 0.75 s"),
        (met("default", Conditions(stolen_s=0.009), stolen_s=0.2), "stolen", "3 of 24 runs, 0.6 s"),
        (
            met("unbound", Conditions(others_share=-0.01), others_share=0.8),
            "others",
            "used 9 % of the CPUs of the runs, in single runs up to 80 %",
        ),
        (met("unbound", other_runs=2), "other-runs", "3 of 24 runs"),
        (met("unbound", oom_kills=1), "out-of-memory unbound", "killed 3 processes"),
        (
            {
                "status": lambda *run: Status.INVALID if run == ("default", 3) else Status.OK,
                "reason": often("default", "", "a thread may run on CPU 7"),
            },
            "invalid default",
            "1 of 12 runs was not bound as planned: a thread may run on CPU 7",
        ),
        (
            {"verification": often("default", Verification.UNSEEN, Verification.NOT_CHECKED)},
            "unseen default",
            "3 runs",
        ),
        ({"values": often("default", (0.0,), (1.0,))}, "not-positive default", "3 values of 12"),
        (once("default", (5,), 1.7), "outliers default", "1 of 12 values is an outlier: 1.68 times"),
        (
            once("default", (1, 2, 3), 1.3),
            "slow-start default",
            "3 runs are the slowest; the median ratio of the others to them is 1.29",
        ),
        (
            {"values": lambda name, number: (1 + number / 100 if name == "default" else 1.0,)},
            "drift default",
            "rose to 1.06 times the first values",
        ),
        ({"values": lambda _, number: (1 - number / 100,)}, "drift", "2 candidates fell to 0.94 times"),
        (
            {"values": lambda name, number: (1.2 if name == "default" and number in (2, 5, 6, 11) else 1.0,)},
            "two-modes default",
            "33 % of the values are 1.20 times the others",
        ),
    ],
)
def test_remarks(fields, code, facts):
    code, _, candidate = code.partition(" ")
    found = remarks(make_runs(**fields))
    assert facts in found[code, candidate]
    assert {code for code, _ in found} <= {code, "outliers"}


def test_few_rounds():
    assert not remarks(make_runs())
    ((key, text),) = remarks(make_runs(QUIET[:5])).items()
    assert (key, text[-3:]) == (("few-rounds", "default"), ": 5")
    assert {*remarks(make_runs(QUIET[:5], candidates=5))} == {("few-rounds", "")}


def test_a_throughput_starts_slowly_if_it_is_low():
    low = make_runs(values=lambda name, number: (0.7 if name == "default" and number <= 3 else 1.0,))
    assert ("slow-start", "default") not in remarks(low)
    assert ("slow-start", "default") in remarks(low.replace(metrics=(Metric(higher=True),)))
