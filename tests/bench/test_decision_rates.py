"""How often decisions on simulated times are right: a small sample of `benchmarks/decision.py`."""

import pytest

from benchmarks.decision import count_mistakes, make_cases, simulate
from benchmarks.promises import make_decision_promises
from tests.long import LONG

CASES = {case.name: case for case in make_cases()}


@pytest.mark.parametrize(
    ("name", "sessions"),
    [
        ("1 of 2 faster, 40 rounds", 100),
        ("1 of 6 faster, 40 rounds", 100),
        ("2 of 6 faster, 40 rounds", 60),
        ("2 equal, 40 rounds", 100),
        ("6 equal, 40 rounds", 60),
        ("2 equal, 150 rounds", 100),
        pytest.param("6 equal, 150 rounds", 100, marks=pytest.mark.long),
    ],
)
def test_decisions_on_simulated_times_keep_their_promises(name, sessions):
    case = CASES[name]
    outcomes = [simulate(case, seed) for seed in range(sessions * (5 if LONG else 1))]
    promises = list(make_decision_promises(dict(count_mistakes(case, outcomes))))
    assert promises
    assert not [promise for promise in promises if promise.missed or promise.measured > promise.limit + 2]
