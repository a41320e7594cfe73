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


@pytest.mark.parametrize("count", [8, 40, 135])
def test_at_most_5_percent_of_normal_series_have_outliers(count):
    series = 1000 if LONG else 100
    noise = ([Random(f"{seed} {at}").gauss(0, 0.05) for at in range(count)] for seed in range(series))
    assert sum(bool(find_outliers(each, MATTERS)) for each in noise) <= 0.05 * series


@pytest.mark.parametrize("logs", [[], [0.0], [0.0] * 40, [0.0, 0.001] * 20])
def test_constant_and_short_series_have_no_outliers(logs):
    assert not find_outliers(logs, MATTERS)


def remarks(rounds=12, candidates=2, **fields):
    """The remarks on a quiet session; fields of runs are functions of a name and a number."""
    runs = []
    for number in range(1, rounds + 1):
        for candidate in make_candidates(candidates):
            chosen = {key: value(candidate.name, number) for key, value in fields.items()}
            time = (1.0 + 0.001 * (number % 3),)
            known = {"number": len(runs), "round": number, "started": 0.0, "values": time, "wall_s": time}
            runs.append(Run(candidate=candidate.name, **known | chosen))
    session = make_session(make_candidates(candidates), Rules()).replace(runs=tuple(runs))
    return {(each.code, each.candidate): each.text for each in conclude(session).remarks}


def often(name, value, other):
    """A field that has a value in three runs of a candidate."""
    return lambda candidate, number: value if candidate == name and number % 4 == 1 else other


def once(value, other):
    return lambda *run: value if run == ("default", 3) else other


def met(name, other=None, **fields):
    return {"conditions": often(name, Conditions(**fields), other or Conditions())}


UNSEEN = often("default", Verification.UNSEEN, Verification.NOT_CHECKED)


@pytest.mark.parametrize(("fields", "code", "facts"), [
    (met("default", throttled_s=0.25, throttled_periods=3), "throttled", "3 of 24 runs, 0.75 s"),
    (met("default", Conditions(stolen_s=0.009), stolen_s=0.2), "stolen", "3 of 24 runs, 0.6 s"),
    (met("unbound", Conditions(others_share=-0.01), others_share=0.8), "others",
     "used 9 % of the CPUs of the runs, in single runs up to 80 %"),
    (met("unbound", other_runs=2), "other-runs", "3 of 24 runs"),
    ({"status": once(Status.INVALID, Status.OK), "reason": once("a thread may run on CPU 7", "")},
     "invalid default", "1 of 12 runs was not bound as planned: a thread may run on CPU 7"),
    ({"verification": UNSEEN}, "unseen default", "3 runs"),
    ({"values": once((1.7,), (1.0,))}, "outliers default", "1 of 12 values is an outlier: 1.70 times"),
])  # fmt: skip
def test_remarks(fields, code, facts):
    ((key, text),) = remarks(**fields).items()
    assert " ".join(filter(None, key)) == code
    assert facts in text


def test_few_rounds():
    assert not remarks()
    ((key, text),) = remarks(5).items()
    assert (key, text[-3:]) == (("few-rounds", "default"), ": 5")
    assert {*remarks(5, candidates=5)} == {("few-rounds", "")}
