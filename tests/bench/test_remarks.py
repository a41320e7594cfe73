"""Remarks on simulated values: what they find, and how often they find something in normal noise."""

import math
from random import Random

import pytest

from benchmarks.decision import make_candidates, make_session
from ompbind.bench.decision import conclude
from ompbind.bench.records import Conditions, Rules, Run, Status, Verification
from ompbind.bench.remarks import find_outliers
from tests.long import LONG

MATTERS = math.log1p(0.02)


def make_noise(count, seed, deviation=0.05):
    source = Random(seed)
    return [source.gauss(0, deviation) for _ in range(count)]


@pytest.mark.parametrize("count", [8, 40, 135])
def test_at_most_5_percent_of_normal_series_have_outliers(count):
    series = 1000 if LONG else 100
    found = sum(bool(find_outliers(make_noise(count, seed), MATTERS)) for seed in range(series))
    assert found <= 0.05 * series


@pytest.mark.parametrize("logs", [[], [0.0], [0.0] * 40, [0.0, 0.001] * 20])
def test_constant_and_short_series_have_no_outliers(logs):
    assert not find_outliers(logs, MATTERS)


QUIET = [1.0 + 0.001 * (number % 3) for number in range(12)]


def make_runs(times=QUIET, *, candidates=2, **fields):
    """A session in which all candidates take the same times; fields are functions of a name and a number."""
    runs = []
    for number, time in enumerate(times, 1):
        for candidate in make_candidates(candidates):
            chosen = {key: value(candidate.name, number) for key, value in fields.items()}
            known = {
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


@pytest.mark.parametrize(("fields", "code", "facts"), [
    (met("default", throttled_s=0.25, throttled_periods=3), "throttled", "3 of 24 runs, 0.75 s"),
    (met("default", Conditions(stolen_s=0.009), stolen_s=0.2), "stolen", "3 of 24 runs, 0.6 s"),
    (
        met("unbound", Conditions(others_share=-0.01), others_share=0.8),
        "others",
        "used 9 % of the CPUs of the runs, in single runs up to 80 %",
    ),
    (met("unbound", other_runs=2), "other-runs", "3 of 24 runs"),
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
    (once("default", (5,), 1.7), "outliers default", "1 of 12 values is an outlier: 1.68 times"),
])  # fmt: skip
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
