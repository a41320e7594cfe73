"""What runs next and what is concluded, on sessions whose times are known."""

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.decision import make_candidates, make_session, make_time, simulate_session
from ompbind.bench.comparing import find_last_round, make_looks
from ompbind.bench.decision import conclude, find_next
from ompbind.bench.records import (
    Candidate,
    ComparisonResult,
    Kind,
    Metric,
    Phase,
    Rules,
    Status,
    Verification,
)
from tests.long import examples

R = ComparisonResult


def varied(name, **fields):
    """A candidate named like "a=1", or "a=1, b=2" with two choices."""
    choices = tuple(tuple(part.split("=")) for part in name.split(", "))
    return Candidate(name=name, **{"kind": Kind.VARIED, "ranks": 1, "choices": choices} | fields)


UNBOUND, DEFAULT = make_candidates(2)
A, B = varied("a=1"), varied("b=1")


def wobble(name, following):
    """A factor between 0.995 and 1.005 that depends on the candidate and the round only."""
    return 1 + 0.01 * (Random(f"{name} {following.phase} {following.round}").random() - 0.5)


def run_all(candidates, times, *, change=None, runs=(), **rules):
    """A session in which each candidate takes `times[name]`, about; `change` may replace each run."""

    def make_run(name, following, number):
        run = make_time(name, following, number, times[name] * wobble(name, following))
        return change(run) if change else run

    session = make_session(tuple(candidates), Rules(**rules)).replace(runs=tuple(runs))
    return simulate_session(session, make_run)


def only(session):
    (group,) = conclude(session).groups
    return group, {each.candidate: each for each in group.comparisons}


def results(session):
    return {name: each.result for name, each in only(session)[1].items()}


def ran(session, phase):
    """The rounds of each candidate in a phase."""
    rounds = {}
    for run in session.runs:
        if run.phase == phase:
            rounds.setdefault(run.candidate, []).append(run.round)
    return rounds


def codes(session):
    return {remark.code for remark in conclude(session).remarks}


@pytest.mark.parametrize(
    ("most", "looks", "last"),
    [
        (40, (8, 12, 18, 27, 40), 40),
        (39, (8, 12, 18, 27), 27),
        (150, (8, 12, 18, 27, 40, 60, 90, 135), 135),
        (203, (8, 12, 18, 27, 40, 60, 90, 135, 202), 202),
        (8, (8,), 8),
        (5, (), 5),
    ],
)
def test_looks_are_planned_and_the_last_round_is_a_look(most, looks, last):
    assert make_looks(most) == looks
    assert find_last_round(most) == last


def test_each_candidate_warms_up_first():
    session = make_session((UNBOUND, DEFAULT, A), Rules())
    first = find_next(session)
    assert (first.phase, first.round) == (Phase.WARM_UP, 0)
    assert first.candidates == ("unbound", "default", "a=1")


def test_the_faster_candidate_is_best_by_fresh_rounds_alone():
    """The choice was lucky: 30 % faster; the fresh rounds say 10 %."""

    def make_lucky(run):
        lucky = run.candidate == "a=1" and run.phase == Phase.CHOICE
        return run.replace(values=(run.values[0] / 1.3,)) if lucky else run

    times = {"unbound": 1.1, "default": 1.1, "a=1": 1.0, "b=1": 1.1}
    session = run_all([UNBOUND, DEFAULT, A, B], times, change=make_lucky)
    group, by_name = only(session)
    assert group.choice == group.comparisons[0].candidate == "a=1"
    assert by_name["a=1"].result == R.BEST
    assert by_name["a=1"].fresh
    assert 1.09 < by_name["a=1"].ratio < 1.11
    assert by_name["a=1"].interval[0] <= by_name["a=1"].ratio <= by_name["a=1"].interval[1]
    assert set(ran(session, Phase.CONFIRMATION)) == {"unbound", "a=1"}
    assert session.ended == "decided"


def test_equal_candidates_have_no_real_difference_and_the_reference_is_recommended():
    session = run_all([UNBOUND, DEFAULT, A], {"unbound": 1.0, "default": 1.0, "a=1": 1.0})
    group, _ = only(session)
    assert results(session) == {"unbound": R.REFERENCE, "default": R.SAME, "a=1": R.SAME}
    assert group.choice == "unbound"
    assert session.ended == "decided"
    assert not ran(session, Phase.CONFIRMATION), "nothing was better, so there is nothing to confirm"


def test_one_contender_needs_no_choice_so_all_its_rounds_are_fresh():
    session = run_all([UNBOUND, DEFAULT], {"unbound": 1.2, "default": 1.0})
    assert not ran(session, Phase.CHOICE)
    _, by_name = only(session)
    assert by_name["default"].result == R.BEST
    assert by_name["default"].fresh
    assert ran(session, Phase.CONFIRMATION)["default"] == list(range(1, 9))


@pytest.mark.parametrize(
    ("ratio", "matters", "expected"),
    [
        (1.05, 0.02, R.BEST),
        (1.05, 0.10, R.SAME),
        (1.0, 0.02, R.SAME),
        (0.95, 0.02, R.SLOWER),
        (0.95, 0.10, R.SAME),
        (1.018, 0.02, R.FASTER),
    ],
)
def test_what_matters_decides_the_result(ratio, matters, expected):
    session = run_all([UNBOUND, DEFAULT], {"unbound": ratio, "default": 1.0}, matters=matters)
    assert results(session)["default"] == expected
    assert only(session)[0].choice == ("default" if expected in (R.BEST, R.FASTER) else "unbound")


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_the_choice_waits_until_no_other_candidate_can_be_better(noise):
    """Both candidates are surely faster than unbound; with noise, which of them is faster is not clear."""

    def change(run):
        factor = Random(run.number).uniform(1 - noise, 1 + noise) if run.candidate == "a=1" else 1
        return run.replace(values=(run.values[0] * factor,))

    session = run_all([UNBOUND, DEFAULT, A], {"unbound": 3.0, "default": 1.05, "a=1": 1.0}, change=change)
    assert max(ran(session, Phase.CHOICE)["a=1"]) == (40 if noise else 12)


def test_among_ties_the_simplest_is_chosen():
    two = varied("a=1, b=1")
    times = {"unbound": 1.5, "default": 1.0, "a=1": 1.0, "a=1, b=1": 0.999}
    session = run_all([UNBOUND, two, A, DEFAULT], times)
    assert only(session)[0].choice == "default"
    without_default = run_all([UNBOUND, two, A], times)
    assert only(without_default)[0].choice == "a=1"


@pytest.mark.parametrize(("most", "rounds", "is_open"), [(40, 27, False), (12, 12, True)])
def test_a_simpler_candidate_is_passed_over_only_if_it_is_worse(most, rounds, is_open):
    """`default` takes 6 % more time than a=1, but less in every sixth round: at round 12 that can be luck."""

    def change(run):
        takes = 0.99 if run.round % 6 == 0 else 1.06
        return run.replace(values=(run.values[0] * takes,)) if run.candidate == "default" else run

    slow = varied("slow=1", choices=())
    times = {"unbound": 2.0, "default": 1.0, "a=1": 1.0, "slow=1": 1.2}
    session = run_all([UNBOUND, DEFAULT, A, slow], times, change=change, max_rounds=most)
    assert {name: max(own) for name, own in ran(session, Phase.CHOICE).items()} == {
        **dict.fromkeys(("unbound", "default", "a=1"), rounds),
        "slow=1": 4,  # as simple as `default`, and dropped
    }
    assert only(session)[0].choice == "a=1"
    texts = [remark.text for remark in conclude(session).remarks if remark.code == "simpler"]
    assert texts == (["not known to be better than default, which has fewer options"] if is_open else [])


def test_a_candidate_that_loses_every_round_is_dropped_after_the_fourth():
    times = {"unbound": 1.3, "default": 1.0, "a=1": 1.2, "b=1": 1.0}
    session = run_all([UNBOUND, DEFAULT, A, B], times)
    rounds = ran(session, Phase.CHOICE)
    assert rounds["a=1"] == [1, 2, 3, 4]
    assert max(rounds["unbound"]) == max(rounds["default"]) > 4, "the reference runs with the others"
    _, by_name = only(session)
    assert by_name["a=1"].result == R.DROPPED
    assert by_name["a=1"].reason.endswith("was better in all 4 rounds, by 20 % in the median")
    assert by_name["a=1"].ratio > 1


@pytest.mark.parametrize("later", ["slows down", "fails"])
def test_a_dropped_candidate_stays_dropped_if_its_leader_fails(later):
    """Only the leader of the first four rounds beat a=1 in each of them."""

    def change(run):
        if run.phase != Phase.CHOICE:
            return run
        if run.candidate == "b=1" and run.round > 5:
            failed = {"status": Status.FAILED, "values": ()}
            return run.replace(**failed if later == "fails" else {"values": (1.4,)})
        return run.replace(values=(1.14,)) if (run.candidate, run.round) == ("default", 2) else run

    times = {"unbound": 1.3, "default": 1.08, "a=1": 1.12, "b=1": 1.0}
    session = run_all([UNBOUND, DEFAULT, A, B], times, change=change)
    assert ran(session, Phase.CHOICE)["a=1"] == [1, 2, 3, 4]
    assert results(session)["a=1"] == R.DROPPED
    assert max(run.round for run in session.runs) > 6


@pytest.mark.parametrize("spared", ["wins a round", "loses by 9 %"])
def test_a_candidate_that_could_still_be_best_is_not_dropped(spared):
    def spare(run):
        wins = spared == "wins a round" and run.candidate == "a=1" and run.round % 3 == 2
        return run.replace(values=(0.9,)) if wins else run

    times = {"unbound": 1.0, "default": 1.0, "a=1": 1.2 if spared == "wins a round" else 1.09}
    session = run_all([UNBOUND, DEFAULT, A], times, change=spare)
    assert len(ran(session, Phase.CHOICE)["a=1"]) >= 8


def test_dropped_candidates_are_announced_once():
    times = {"unbound": 1.0, "default": 1.0, "a=1": 1.3, "b=1": 1.0}
    session = run_all([UNBOUND, DEFAULT, A, B], times)
    announced = []
    for count in range(len(session.runs)):
        following = find_next(session.replace(runs=session.runs[:count]))
        announced += [(following.round, name) for name, _ in following.dropped]
    assert announced == [(5, "a=1")]


RANKS = [
    Candidate(name="1 rank, unbound", kind=Kind.UNBOUND, ranks=1),
    Candidate(name="1 rank, default", kind=Kind.DEFAULT, ranks=1),
    Candidate(name="2 ranks, unbound", kind=Kind.UNBOUND, ranks=2),
    Candidate(name="2 ranks, default", kind=Kind.DEFAULT, ranks=2),
]
RANK_TIMES = {
    "1 rank, unbound": 1.5,
    "1 rank, default": 1.0,
    "2 ranks, unbound": 0.9,
    "2 ranks, default": 0.88,
}


def test_only_candidates_with_the_same_number_of_ranks_are_compared():
    session = run_all(RANKS, RANK_TIMES, matters=0.05)
    groups = conclude(session).groups
    assert [(group.ranks, group.reference) for group in groups] == [
        (1, "1 rank, unbound"),
        (2, "2 ranks, unbound"),
    ]
    assert [group.choice for group in groups] == ["1 rank, default", "2 ranks, unbound"]


def test_a_decided_group_stops_running():
    def disturb(run):
        factor = Random(run.number).uniform(0.8, 1.2) if run.candidate == "2 ranks, default" else 1
        return run.replace(values=(run.values[0] * factor,))

    session = run_all(RANKS, RANK_TIMES, change=disturb)
    rounds = ran(session, Phase.CONFIRMATION)
    assert max(rounds["1 rank, default"]) == 12
    assert max(rounds["2 ranks, default"]) == 40
    assert session.ended == "not decided after 40 rounds"


def test_the_same_work_is_compared_across_numbers_of_ranks():
    session = run_all(RANKS, RANK_TIMES, same_work=True)
    group, by_name = only(session)
    assert group.ranks is None
    assert group.reference == "1 rank, unbound"
    assert group.choice == "2 ranks, default"
    assert by_name["2 ranks, default"].ratio == pytest.approx(1.5 / 0.88, rel=0.02)


def test_more_is_better_for_a_throughput():
    session = run_all([UNBOUND, DEFAULT], {"unbound": 100.0, "default": 110.0})
    higher = make_session((UNBOUND, DEFAULT), Rules()).replace(metrics=(Metric(higher=True),))
    _, by_name = only(higher.replace(runs=session.runs))
    assert by_name["default"].result == R.BEST
    assert by_name["default"].ratio == pytest.approx(1.1, rel=0.01)
    assert results(session)["default"] == R.SLOWER


def fail_from(name, phase, number=0):
    def fail(run):
        if run.candidate == name and run.phase == phase and run.round >= number:
            return run.replace(status=Status.FAILED, values=(), reason="exit code 3: no space left")
        return run

    return fail


TIMES = {"unbound": 1.2, "default": 1.0, "a=1": 1.0, "b=1": 1.0}


@pytest.mark.parametrize(("phase", "number"), [(Phase.WARM_UP, 0), (Phase.CHOICE, 3)])
def test_a_failed_candidate_is_disqualified_at_once(phase, number):
    session = run_all([UNBOUND, DEFAULT, A], TIMES, change=fail_from("a=1", phase, number))
    _, by_name = only(session)
    assert by_name["a=1"].result == R.DISQUALIFIED
    assert by_name["a=1"].reason == "exit code 3: no space left"
    assert sum(run.status == Status.FAILED for run in session.runs) == 1
    assert by_name["default"].result == R.BEST


def test_a_choice_that_fails_is_replaced():
    session = run_all([UNBOUND, DEFAULT, A], TIMES, change=fail_from("default", Phase.CONFIRMATION, 2))
    group, by_name = only(session)
    assert by_name["default"].result == R.DISQUALIFIED
    assert group.choice == "a=1"
    assert by_name["a=1"].result == R.BEST


@pytest.mark.parametrize("phase", [Phase.WARM_UP, Phase.CHOICE, Phase.CONFIRMATION])
def test_the_default_becomes_the_reference_if_unbound_fails(phase):
    times = TIMES | {"a=1": 0.9, "b=1": 0.95}
    session = run_all([UNBOUND, DEFAULT, A, B], times, change=fail_from("unbound", phase))
    group, by_name = only(session)
    assert group.reference == "default"
    assert by_name["a=1"].result == R.BEST
    assert by_name["a=1"].ratio == pytest.approx(1 / 0.9, rel=0.01)
    assert "unbound failed, so the others are compared with default" in [
        remark.text for remark in conclude(session).remarks
    ]


@pytest.mark.parametrize("able", [0, 1])
def test_nothing_is_compared_if_all_but_one_fail(able):
    def fail(run):
        return run if able and run.candidate == "a=1" else run.replace(status=Status.FAILED, values=())

    session = run_all([UNBOUND, DEFAULT, A], TIMES, change=fail)
    group, _ = only(session)
    assert session.ended == "no candidate is left to compare"
    assert group.choice == group.reference == ("a=1" if able else "")
    assert len(session.runs) == 3


def violate(run):
    if run.candidate == "a=1" and run.phase == Phase.CHOICE and run.round in (3, 5, 9):
        return run.replace(
            status=Status.INVALID, verification=Verification.VIOLATED, reason="a thread may run on CPU 7"
        )
    return run


def test_invalid_runs_do_not_count_and_three_disqualify():
    times = TIMES | {"unbound": 1.0}
    session = run_all([UNBOUND, DEFAULT, A], times, change=violate, matters=0.001)
    assert max(ran(session, Phase.CHOICE)["a=1"]) == 9
    _, by_name = only(session)
    assert by_name["a=1"].result == R.DISQUALIFIED
    assert by_name["a=1"].reason == "not bound as planned in 3 checks: a thread may run on CPU 7"
    _, before = only(session.replace(runs=tuple(run for run in session.runs if run.round < 9)))
    assert before["a=1"].result != R.DISQUALIFIED
    assert before["a=1"].rounds == 6


def test_a_valid_check_starts_the_count_of_invalid_runs_again():
    def check(run):
        return run.replace(verification=Verification.VERIFIED) if run.round == 7 else violate(run)

    session = run_all([UNBOUND, DEFAULT, A], TIMES | {"unbound": 1.0}, change=check, matters=0.001)
    assert results(session)["a=1"] != R.DISQUALIFIED


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_numbers_without_a_ratio_are_not_compared(value):
    def change(run):
        return run.replace(values=(value,)) if run.candidate == "a=1" else run

    session = run_all([UNBOUND, DEFAULT, A], TIMES, change=change)
    _, by_name = only(session)
    assert by_name["a=1"].result == R.UNKNOWN
    assert by_name["a=1"].rounds == 0
    assert by_name["default"].result == R.BEST
    assert "not-positive" in codes(session)


def make_noisy(rounds, deviation=0.05, seed=1):
    """Two equal candidates after some rounds, with noise."""
    source = Random(seed)
    session = make_session((UNBOUND, DEFAULT), Rules())

    def make_run(name, following, number):
        return make_time(name, following, number, math.exp(source.gauss(0, deviation)))

    session = simulate_session(session, make_run)
    return session.replace(runs=tuple(run for run in session.runs if run.round <= rounds), ended="")


def test_more_rounds_are_proposed_until_a_look():
    _, early = only(run_all([UNBOUND, DEFAULT], TIMES, max_rounds=5))
    assert early["default"].result == R.UNKNOWN
    assert early["default"].interval is None
    assert early["default"].more_rounds == 3, "an interval needs eight rounds"
    _, noisy = only(make_noisy(5))
    assert noisy["default"].interval is None
    assert noisy["default"].more_rounds > 30, "the first interval will be too wide"
    _, shared = only(make_session((UNBOUND, DEFAULT, A), Rules()))
    assert shared["default"].more_rounds == 12, "with two comparisons, an interval needs nine rounds"
    _, late = only(make_noisy(40))
    assert late["default"].result == R.UNKNOWN
    assert 40 + late["default"].more_rounds in make_looks(10_000)
    assert late["default"].more_rounds >= 95


def test_the_proposed_rounds_decide_most_sessions():
    """Sessions that were not decided after 40 rounds continue as long as was proposed."""
    decided = proposed = 0
    for seed in range(40):
        source = Random(seed)

        def make_run(name, following, number, source=source):
            return make_time(name, following, number, math.exp(source.gauss(0, 0.025)))

        session = simulate_session(make_session((UNBOUND, DEFAULT), Rules()), make_run)
        more = only(session)[1]["default"].more_rounds
        if more is not None and more < 1000:
            longer = session.replace(rules=Rules(max_rounds=40 + more), ended="")
            proposed += 1
            decided += results(simulate_session(longer, make_run))["default"] != R.UNKNOWN
    assert proposed >= 15
    assert decided >= 0.6 * proposed


def test_a_single_round_is_named_in_the_singular():
    assert run_all([UNBOUND, DEFAULT], TIMES, max_rounds=1).ended == "not decided after 1 round"


def test_fewer_rounds_than_a_look_decide_nothing():
    session = run_all([UNBOUND, DEFAULT, A], TIMES, max_rounds=5)
    assert max(run.round for run in session.runs) == 5
    assert session.ended == "not decided after 5 rounds"
    assert run_all([UNBOUND, DEFAULT, A], TIMES, max_rounds=1).ended == "not decided after 1 round"
    group, by_name = only(session)
    assert group.choice == ""
    assert {each.result for name, each in by_name.items() if name != "unbound"} == {R.UNKNOWN}
    assert by_name["default"].ratio == pytest.approx(1.2, rel=0.02)


def test_an_interrupted_session_is_concluded_from_what_there_is():
    session = run_all([UNBOUND, DEFAULT, A, B], TIMES | {"b=1": 1.19}, matters=0.001)
    partial = session.replace(runs=tuple(run for run in session.runs if run.phase != Phase.CONFIRMATION))
    group, by_name = only(partial)
    assert by_name["default"].result == R.FASTER
    assert not by_name["default"].fresh
    assert group.choice in ("default", "a=1")
    empty, nothing = only(session.replace(runs=()))
    assert empty.choice == ""
    assert {each.result for each in nothing.values()} == {R.REFERENCE, R.UNKNOWN}


def test_a_choice_that_is_being_confirmed_stays_if_there_may_be_more_rounds():
    """Twelve rounds decide nothing here; then the session is resumed with twenty-seven."""
    times = {"unbound": 1.0, "default": 1.0, "a=1": 0.99}

    def add_noise(run):
        factor = math.exp(Random(f"{run.candidate} {run.phase} {run.round}").gauss(0, 0.05))
        return run.replace(values=(run.values[0] * factor,))

    session = run_all([UNBOUND, DEFAULT, A], times, change=add_noise, max_rounds=12)
    assert ran(session, Phase.CONFIRMATION)["unbound"] == list(range(1, 13))
    more = run_all([UNBOUND, DEFAULT, A], times, change=add_noise, runs=session.runs, max_rounds=27)
    assert ran(more, Phase.CHOICE) == ran(session, Phase.CHOICE)
    assert ran(more, Phase.CONFIRMATION)["unbound"] == list(range(1, 28))


def keys(session):
    return sorted((run.phase, run.round, run.candidate) for run in session.runs)


def test_the_choice_continues_if_the_chosen_candidate_fails_and_others_are_not_clear():
    """After the failure, a round has more candidates than the round before. It may be interrupted."""
    fail = fail_from("default", Phase.CONFIRMATION, 2)

    def change(run):
        factor = Random(run.number).uniform(1, 1.1) if run.candidate in ("a=1", "b=1") else 1
        return fail(run.replace(values=(run.values[0] * factor,)))

    candidates, times = [UNBOUND, DEFAULT, A, B], TIMES | {"unbound": 3.0, "default": 0.99}
    whole = run_all(candidates, times, change=change)
    rounds = ran(whole, Phase.CHOICE)
    assert len(rounds["default"]) == 12
    assert len(rounds["a=1"]) > 12
    first = next(run.number for run in whole.runs if run.phase == Phase.CHOICE and run.round == 13)
    for kept in range(first, first + 5):
        resumed = run_all(candidates, times, change=change, runs=whole.runs[:kept])
        assert {key[:2] for key in keys(resumed)} == {key[:2] for key in keys(whole)}
        assert len(ran(resumed, Phase.CHOICE)["a=1"]) == len(ran(resumed, Phase.CHOICE)["b=1"])


NUMBERS = st.sampled_from([0.8, 0.9, 0.99, 1.0, 1.01, 1.1, 1.3])


@examples(0.3, deadline=None)
@given(st.lists(NUMBERS, min_size=1, max_size=4), st.booleans(), st.sampled_from([5, 8, 20]), st.data())
def test_a_session_continues_from_any_run_as_if_it_had_not_stopped(factors, fails, most, data):
    """The results file may end after any run."""
    candidates = make_candidates(1 + len(factors))
    names = [candidate.name for candidate in candidates]
    times = dict(zip(names, [1.0, *factors], strict=True))
    change = fail_from(names[-1], Phase.CHOICE, 4) if fails else None
    whole = run_all(candidates, times, change=change, max_rounds=most)
    kept = data.draw(st.integers(0, len(whole.runs)))
    conclude(whole.replace(runs=whole.runs[:kept]))
    resumed = run_all(candidates, times, change=change, runs=whole.runs[:kept], max_rounds=most)
    assert keys(resumed) == keys(whole)
    assert resumed.ended == whole.ended
    assert results(resumed) == results(whole)
    assert only(resumed)[0].choice == only(whole)[0].choice
