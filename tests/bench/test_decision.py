"""What runs next, what is concluded, and remarks, on sessions whose times are known."""

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.decision import make_candidates, make_session, make_time, simulate_session
from ompbind.bench.decision import conclude, find_next
from ompbind.bench.records import Candidate, Conditions, Kind, Metric, Rules, Run, Status, Verification
from ompbind.bench.records import ComparisonResult as R
from ompbind.bench.remarks import find_outliers
from tests.bench import sessions
from tests.long import LONG, examples

UNBOUND, DEFAULT, A, B = (each.replace(name=name) for each, name in zip(
    make_candidates(4), ("unbound", "default", "a=1", "b=1"), strict=True))  # fmt: skip


def run_all(candidates, times, *, change=None, runs=(), **rules):
    """A session in which each candidate takes `times[name]`, about; `change` may replace each run."""

    def make_run(name, following, number):
        wobble = 1 + 0.01 * (Random(f"{name} {following.round}").random() - 0.5)
        run = make_time(name, following, number, times[name] * wobble)
        return change(run) if change else run

    session = make_session(tuple(candidates), Rules(**rules)).replace(runs=tuple(runs))
    return simulate_session(session, make_run)


def run_times(*times, **options):
    candidates = (UNBOUND, DEFAULT, A, B)[: len(times)]
    names = (candidate.name for candidate in candidates)
    return run_all(candidates, dict(zip(names, times, strict=True)), **options)


def scale(factors):
    """A change that multiplies the time of a run by what a function of it returns."""
    return lambda run: run.replace(values=(run.values[0] * factors(run),))


def noisy(low, high, *names):
    return scale(lambda run: Random(run.number).uniform(low, high) if run.candidate in names else 1)


def only(session):
    (group,) = conclude(session).groups
    return group, {each.candidate: each for each in group.comparisons}


def results(session):
    return {name: each.result for name, each in only(session)[1].items()}


def ran(session):
    rounds = {}
    for run in session.runs:
        if run.round:
            rounds.setdefault(run.candidate, []).append(run.round)
    return rounds


def announced(session):
    parts = (session.replace(runs=session.runs[:count]) for count in range(len(session.runs) + 1))
    return [(found.round, name) for found in map(find_next, parts) for name, _ in found.dropped]


@pytest.mark.parametrize(("ratio", "matters", "expected"), [
    (1.0, 0.02, R.SAME), (1.05, 0.02, R.BEST), (1.05, 0.10, R.SAME), (0.95, 0.02, R.SLOWER),
    (0.95, 0.10, R.SAME), (1.018, 0.02, R.SAME),
])  # fmt: skip
def test_what_matters_decides_the_result(ratio, matters, expected):
    session = run_times(ratio, 1.0, matters=matters)
    assert results(session) == {"unbound": R.REFERENCE, "default": expected}
    assert only(session)[0].choice == ("default" if expected == R.BEST else "unbound")
    assert session.ended == "decided"
    assert {run.candidate for run in session.runs if not run.round} == {"unbound", "default"}
    if expected in (R.SLOWER, R.BEST):  # more is better for a throughput
        found = only(session.replace(metrics=(Metric(higher=True),)))[1]["default"]
        assert found.result == (R.BEST if expected == R.SLOWER else R.SLOWER)
        assert found.ratio == pytest.approx(1 / ratio, rel=0.01)


def test_the_choice_waits_until_no_other_candidate_can_be_better():
    for noise, rounds in ((0.0, 12), (0.05, 40)):
        session = run_times(3.0, 1.0, 1.01, change=noisy(1 - noise, 1 + noise, "a=1"))
        assert max(ran(session)["a=1"]) == rounds


def test_among_ties_the_simplest_is_chosen_unless_it_is_worse():
    two = A.replace(name="a=1, b=1", choices=(*A.choices, ("b", "1")))
    times = {"unbound": 1.5, "default": 1.0, "a=1": 1.0, "a=1, b=1": 0.999}
    assert only(run_all([UNBOUND, two, A, DEFAULT], times))[0].choice == "default"
    assert only(run_all([UNBOUND, two, A], times))[0].choice == "a=1"
    # 6 % more time than a=1, but less in every sixth round: at round 12 that can be luck
    change = scale(lambda run: 1 if run.candidate != "default" else 1.06 if run.round % 6 else 0.99)
    session = run_times(2.0, 1.0, 1.0, change=change)
    assert (max(ran(session)["default"]), only(session)[0].choice) == (27, "a=1")


def test_a_candidate_that_clearly_loses_every_round_is_dropped_after_the_sixth_and_announced_once():
    session = run_times(1.3, 1.0, 1.2, 1.0)
    rounds = ran(session)
    assert rounds["a=1"] == [1, 2, 3, 4, 5, 6]
    assert max(rounds["unbound"]) == max(rounds["default"]) > 6, "the reference runs with the others"
    dropped = only(session)[1]["a=1"]
    assert (dropped.result, dropped.reason) == (R.DROPPED, "default was better in all 6 rounds")
    assert dropped.ratio > 1
    assert announced(session) == [(7, "a=1")]


def test_a_candidate_that_wins_every_third_round_is_not_dropped():
    change = scale(lambda run: 0.75 if run.candidate == "a=1" and run.round % 3 == 2 else 1)
    assert len(ran(run_times(1.0, 1.0, 1.2, change=change))["a=1"]) >= 8


RANKS = [
    Candidate(name=f"{ranks}, {kind}", kind=kind, ranks=int(ranks[0]))
    for ranks in ("1 rank", "2 ranks") for kind in (Kind.UNBOUND, Kind.DEFAULT)
]  # fmt: skip


def run_ranks(*times, **options):
    names = (candidate.name for candidate in RANKS)
    return run_all(RANKS, dict(zip(names, times, strict=True)), **options)


def test_only_candidates_with_the_same_number_of_ranks_are_compared_and_a_decided_group_stops():
    groups = conclude(run_ranks(1.5, 1.0, 0.9, 0.88, matters=0.05)).groups
    assert [(group.ranks, group.reference, group.choice) for group in groups] == [
        (1, "1 rank, unbound", "1 rank, default"), (2, "2 ranks, unbound", "2 ranks, unbound"),
    ]  # fmt: skip
    session = run_ranks(1.5, 1.0, 0.9, 0.88, change=noisy(0.8, 1.2, "2 ranks, default"))
    rounds = ran(session)
    assert (max(rounds["1 rank, default"]), max(rounds["2 ranks, default"])) == (12, 40)
    assert session.ended == "not decided after 40 rounds"


@pytest.mark.parametrize(("times", "choice", "binding", "ranks"), [
    ((1.0, 0.9, 0.6, 0.5), "2 ranks, default", R.BEST, R.BEST),
    ((1.0, 1.0, 0.5, 0.5), "2 ranks, unbound", R.SAME, R.BEST),
    ((1.0, 0.8, 1.0, 0.8), "1 rank, default", R.BEST, R.SAME),
    ((1.0, 0.8, 1.5, 1.4), "1 rank, default", R.BEST, R.DROPPED),
    ((1.0, 1.0, 2.0, 0.5), "2 ranks, default", R.BEST, R.BEST),
    ((1.0, 1.2, 1.0, 1.2), "1 rank, unbound", R.DROPPED, R.SAME),
], ids=["both", "ranks", "binding", "fewer ranks", "binding helps two ranks", "neither"])  # fmt: skip
def test_the_effects_of_binding_and_of_the_number_of_ranks_are_separate(times, choice, binding, ranks):
    """Of candidates with the same work: ratios compare equal numbers of ranks, or the same binding."""
    expected = {candidate.name: time for candidate, time in zip(RANKS, times, strict=True)}
    session = run_ranks(*times, same_work=True)
    *numbers, same = conclude(session).groups
    assert [group.reference for group in numbers] == ["1 rank, unbound", "2 ranks, unbound"]
    assert {group.choice for group in (*numbers, same)} == {choice, ""}
    if ranks == R.DROPPED:
        assert {each.result for each in numbers[1].comparisons} == {R.DROPPED}, "and its reference"
    for group, result in ((numbers[int(choice[0]) - 1], binding), (same, ranks)):
        (compared,) = (each for each in group.comparisons if each.result != R.REFERENCE)
        assert compared.result == result
        ratio = expected[group.reference] / expected[compared.candidate]
        assert compared.ratio == pytest.approx(ratio, rel=0.02)
    assert session.ended == "decided"
    gone = [name for _, name in announced(session)]
    assert len(gone) == len({*gone}), "a candidate that has left stays away"


def test_a_candidate_that_is_not_known_to_be_better_is_replaced_by_one_that_is():
    session = run_ranks(1.0, 1.0, 0.5, 0.48, change=noisy(0.9, 1.1, "2 ranks, default"), same_work=True)
    assert session.ended == "decided"
    assert {group.choice for group in conclude(session).groups} == {"", "2 ranks, unbound"}


def fail_from(name, number):
    def fail(run):
        if run.candidate == name and run.round >= number:
            return run.replace(status=Status.FAILED, values=(), reason="exit code 3: no space left")
        return run

    return fail


@pytest.mark.parametrize("number", [0, 3, 9])
def test_a_failed_candidate_is_disqualified_at_once_and_the_next_is_the_reference(number):
    session = run_times(1.2, 1.0, 0.9, 0.95, change=fail_from("unbound", number))
    group, by_name = only(session)
    failed = by_name["unbound"]
    assert (failed.result, failed.reason) == (R.DISQUALIFIED, "exit code 3: no space left")
    assert sum(run.status == Status.FAILED for run in session.runs) == 1
    assert (group.reference, by_name["a=1"].result) == ("default", R.BEST)
    assert by_name["a=1"].ratio == pytest.approx(1 / 0.9, rel=0.01)


@pytest.mark.parametrize("checked", [False, True])
def test_invalid_runs_do_not_count_and_three_disqualify_unless_a_valid_check_is_between(checked):
    def violate(run):
        if checked and run.round == 7:
            return run.replace(verification=Verification.VERIFIED)
        if run.candidate == "a=1" and run.round in (3, 5, 9):
            invalid = {"status": Status.INVALID, "verification": Verification.VIOLATED}
            return run.replace(**invalid, reason="a thread may run on CPU 7")
        return run

    session = run_times(1.0, 1.0, 1.0, change=violate, matters=0.001)
    found = only(session)[1]["a=1"]
    assert (found.result == R.DISQUALIFIED) != checked
    if not checked:
        assert max(ran(session)["a=1"]) == 9
        assert "3 checks: a thread may run on CPU 7" in found.reason
        before = session.replace(runs=tuple(run for run in session.runs if run.round < 9))
        assert only(before)[1]["a=1"].rounds == 6


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_numbers_without_a_ratio_are_not_compared(value):
    change = scale(lambda run: value if run.candidate == "a=1" else 1)
    session = run_times(1.2, 1.0, 1.0, change=change)
    _, by_name = only(session)
    assert (by_name["a=1"].result, by_name["a=1"].rounds) == (R.UNKNOWN, 0)
    assert (by_name["default"].result, session.ended) == (R.BEST, "decided")


NUMBERS = st.sampled_from([0.8, 0.9, 0.99, 1.0, 1.01, 1.1, 1.3])


@examples(0.2, deadline=None)
@given(st.lists(NUMBERS, min_size=1, max_size=4), st.booleans(), st.sampled_from([5, 8, 20]), st.data())
def test_a_session_continues_from_any_run_as_if_it_had_not_stopped(factors, fails, most, data):
    candidates = make_candidates(1 + len(factors))
    names = [candidate.name for candidate in candidates]
    times = dict(zip(names, [1.0, *factors], strict=True))
    change = fail_from(names[-1], 4) if fails else None
    whole = run_all(candidates, times, change=change, max_rounds=most)
    kept = whole.runs[: data.draw(st.integers(0, len(whole.runs)))]
    conclude(whole.replace(runs=kept))
    resumed = run_all(candidates, times, change=change, runs=kept, max_rounds=most)

    def found(session):
        keys = sorted((run.round, run.candidate) for run in session.runs)
        return keys, session.ended, results(session), only(session)[0].choice

    assert found(resumed) == found(whole)
    if whole.ended == f"not decided after {most} rounds":
        longer = run_all(candidates, times, change=change, runs=whole.runs, max_rounds=most + 1)
        assert max(run.round for run in longer.runs) == most + 1
    else:
        assert whole.ended in ("decided", "no candidate is left to compare")


MATTERS = math.log1p(0.02)


@pytest.mark.parametrize("count", [8, 40, 135])
def test_at_most_5_percent_of_normal_series_and_no_constant_one_have_outliers(count):
    series = 1000 if LONG else 100
    noise = ([Random(f"{seed} {at}").gauss(0, 0.05) for at in range(count)] for seed in range(series))
    assert sum(bool(find_outliers(each, MATTERS)) for each in noise) <= 0.05 * series
    for logs in ([], [0.0], [0.0] * count, [0.0, 0.001] * count):
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
    ({"rounds": 5}, "few-rounds default", "interval: 5"),
    ({"rounds": 5, "candidates": 5}, "few-rounds", "intervals: 5"),
])  # fmt: skip
def test_remarks(fields, code, facts):
    assert not remarks()
    ((key, text),) = remarks(**fields).items()
    assert " ".join(filter(None, key)) == code
    assert facts in text


@pytest.mark.parametrize(
    ("factor", "busy_s", "is_told"), [(1.0, 1.9, True), (1.0, 0.9, False), (0.5, 1.9, False)]
)
def test_a_pool_that_no_number_of_threads_changes_is_told(factor, busy_s, is_told):
    """A serial program, and a program that gets faster, have no such pool."""
    few, more = (sessions.make_candidate(name, threads=n) for name, n in (("threads=1", 1), ("default", 2)))
    made = sessions.make_session({more: factor, few: 1.0}, noise=0.0, base=1.0)
    made = made.replace(runs=tuple(run.replace(user_s=busy_s, wall_s=(1.0,)) for run in made.runs))
    texts = [each.text for each in conclude(made).remarks if "affinity mask" in each.text]
    assert len(texts) == is_told
    assert all("threads=1 and default" in text and "--vary cores=1,2" in text for text in texts)
