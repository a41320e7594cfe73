"""How long a session takes at most, and the best candidate so far."""

import pytest

from ompbind.bench.records import Metric, NextRound, Phase, Rules, Run, Status
from ompbind.bench.session import estimate_most_s, find_best_so_far
from tests.bench.fakes import NAMES, make_session


def make_runs(values, **changes):
    """Three runs of each candidate that take `values`, after a warm-up."""
    return tuple(
        Run(
            candidate=name,
            number=0,
            phase=Phase.CHOICE if number else Phase.WARM_UP,
            round=number,
            started=0.0,
            values=(value if number else 0.001,),
            wall_s=(value, value / 2),
        ).replace(**changes)
        for number in range(4)
        for name, value in values.items()
    )


TIMES = {"unbound": 4.0, "default": 2.0, "smt=2": 1.0}


def test_the_best_has_the_best_median():
    session = make_session(runs=make_runs(TIMES))
    assert find_best_so_far(session, "default") == "smt=2"
    higher = session.replace(metrics=(Metric(name="x", pattern="(.)", higher=True),))
    assert find_best_so_far(higher, "default") == "unbound"
    assert find_best_so_far(session.replace(runs=session.runs[:3]), "default") == ""
    assert find_best_so_far(session.replace(runs=make_runs(TIMES, status=Status.INVALID)), "default") == ""


def test_candidates_with_other_work_are_not_compared():
    session = make_session(runs=make_runs(TIMES))
    other = session.candidates[2].replace(ranks=4)
    session = session.replace(candidates=(*session.candidates[:2], other))
    assert find_best_so_far(session, "unbound") == "default"
    assert find_best_so_far(session.replace(rules=Rules(same_work=True)), "unbound") == "smt=2"


@pytest.mark.parametrize(
    ("phase", "number", "most_s"),
    [
        (Phase.CHOICE, 1, 40 * 7.0 + 40 * 2 * 4.0),
        (Phase.CHOICE, 40, 7.0 + 40 * 2 * 4.0),
        (Phase.CONFIRMATION, 40, 7.0),
        (Phase.WARM_UP, 0, 41 * 7.0 + 40 * 2 * 4.0),
    ],
)
def test_the_time_left_is_that_of_all_rounds(phase, number, most_s):
    upcoming = NextRound(phase=phase, round=number, candidates=NAMES)
    assert estimate_most_s(make_session(runs=make_runs(TIMES)), upcoming) == pytest.approx(most_s)
    assert estimate_most_s(make_session(), upcoming) is None


def test_a_candidate_without_runs_counts_as_the_others():
    upcoming = NextRound(phase=Phase.CONFIRMATION, round=40, candidates=NAMES)
    session = make_session(runs=make_runs({"unbound": 4.0, "default": 2.0}))
    assert estimate_most_s(session, upcoming) == pytest.approx(9.0)
