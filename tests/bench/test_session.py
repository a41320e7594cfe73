"""The main loop of a session: order, budget, interrupts, errors, and what is left and best so far."""

import signal

import pytest

from ompbind.bench.records import NextRound, Status
from ompbind.bench.results import DROP, ENDED, RUN
from ompbind.bench.run_candidate import catch_interrupts
from ompbind.bench.session import SessionLoop, make_order
from ompbind.errors import LaunchError
from tests.bench.fakes import NAMES, ROUNDS, find_next, make_run, make_session, make_starts


def run(session, start=make_run, budget_s=None, decide=find_next, save=None):
    """Return the end of a session, the saved events, and what was shown: candidates and events."""
    saved, shown = [], ([], [])

    def save_event(event):
        if save:
            save(len(saved))
        saved.append(event)

    loop = SessionLoop(
        session,
        make_starts(session),
        start,
        save_event,
        show_start=lambda *start: shown[0].append(start[2]),
        show_event=shown[1].append,
        find_next=decide,
    )
    with catch_interrupts() as loop.arrived:
        loop.run(budget_s)
    return loop, saved, shown


def before_run(at, act):
    """A function that makes runs, and acts before the one with a number."""

    def start(candidate, number, round_number):
        if number == at:
            act()
        return make_run(candidate, number, round_number)

    return start


def test_runs_each_candidate_once_per_round_and_saves_each_run():
    end, saved, shown = run(make_session())
    assert (end.session.ended, end.error) == ("decided", None)
    runs = end.session.runs
    assert [each.number for each in runs] == list(range(3 * (ROUNDS + 1)))
    assert [each.round for each in runs[:4]] == [0, 0, 0, 1]
    for number in range(ROUNDS + 1):
        assert {each.candidate for each in runs if each.round == number} == set(NAMES)
    assert [event["event"] for event in saved] == [RUN] * len(runs) + [ENDED]
    assert shown == ([each.candidate for each in runs], saved)


def test_the_order_is_random_and_depends_on_the_seed_alone():
    rounds = [NextRound(round=number, candidates=NAMES) for number in range(1, 41)]
    orders = [make_order(upcoming, 7) for upcoming in rounds]
    assert len(set(orders)) == 6  # all orders of three candidates
    swapped = [upcoming.replace(candidates=NAMES[::-1]) for upcoming in rounds]
    assert orders == [make_order(upcoming, 7) for upcoming in swapped]
    assert orders != [make_order(upcoming, 8) for upcoming in rounds]


@pytest.mark.parametrize("stop_after", [0, 1, 8, 18])
def test_a_resumed_session_continues_exactly(stop_after):
    whole = run(make_session())[0].session
    end, saved, _ = run(whole.replace(runs=whole.runs[:stop_after], ended=""))
    assert end.session == whole
    assert len([event for event in saved if event["event"] == RUN]) == len(whole.runs) - stop_after


def test_a_candidate_that_leaves_is_an_event_and_a_finished_session_adds_none():
    def decide(session):
        dropped = (("smt=2", "slow"),) if len(session.runs) in (6, 18) else ()
        return find_next(session).replace(dropped=dropped)

    end, saved, _ = run(make_session(), decide=decide)
    events = [event["event"] for event in saved]
    assert [at for at, event in enumerate(events) if event == DROP] == [6, 19]
    assert run(end.session, decide=decide)[1] == []


@pytest.mark.parametrize(("budget_s", "rounds"), [(0.0, 0), (3.3, 1), (1000.0, ROUNDS)])
def test_stops_before_a_round_that_would_exceed_the_budget(budget_s, rounds, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])

    def start(candidate, number, round_number):
        made = make_run(candidate, number, round_number)
        now[0] += max(made.wall_s) if round_number else 0.0
        return made

    end, saved, _ = run(make_session(), start=start, budget_s=budget_s)
    assert len(end.session.runs) == 3 * (rounds + 1)
    assert saved[-1]["reason"] == end.session.ended
    assert (f"budget of {budget_s:g} s" in end.session.ended) == (rounds < ROUNDS)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_during_a_run_keeps_the_runs_before(number):
    before = signal.getsignal(number)
    end, saved, _ = run(make_session(), start=before_run(5, lambda: signal.raise_signal(number)))
    assert end.arrived == [number]
    assert (end.session.ended, len(end.session.runs), end.error) == ("interrupted", 5, None)
    assert [event["event"] for event in saved] == [RUN] * 5 + [ENDED]
    assert signal.getsignal(number) is before


def test_a_signal_while_a_run_is_saved_comes_after_it():
    """Memory and the results file have the same runs."""

    def save(count):
        if count == 4:
            signal.raise_signal(signal.SIGTERM)  # of this thread: pytest-xdist has others

    end, saved, _ = run(make_session(), save=save)
    assert len(end.session.runs) == 5
    assert [event["event"] for event in saved] == [RUN] * 5 + [ENDED]


def test_a_candidate_that_cannot_start_has_failed():
    def start(candidate, number, round_number):
        if candidate.candidate.name == "smt=2":
            raise LaunchError("no such command")
        return make_run(candidate, number, round_number)

    end, _, _ = run(make_session(), start=start)
    failed = [each for each in end.session.runs if each.candidate == "smt=2"]
    assert {(each.status, each.reason) for each in failed} == {(Status.FAILED, "no such command")}
    assert end.session.ended == "decided"


def test_an_error_of_the_session_keeps_the_runs_before():
    end, saved, _ = run(make_session(), start=before_run(7, lambda: 1 / 0))
    assert isinstance(end.error, ZeroDivisionError)
    assert len(end.session.runs) == 7
    assert "division by zero" in end.session.ended
    assert saved[-1]["event"] == ENDED


def test_a_results_file_that_cannot_be_written_stops_the_session():
    def save(count):
        if count == 3:
            raise LaunchError("disk full")

    end, _, _ = run(make_session(), save=save)
    assert (end.error.message, len(end.session.runs)) == ("disk full", 4)
