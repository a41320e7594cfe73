"""The main loop of a session: order, budget, interrupts, errors, and what is shown."""

import signal

import pytest

from ompbind.bench.records import NextRound, Status
from ompbind.bench.results import DROP, ENDED, RUN
from ompbind.bench.run_candidate import catch_interrupts
from ompbind.bench.session import SessionLoop, make_order
from ompbind.errors import LaunchError
from tests.bench.sessions import NAMES, ROUNDS, find_next, make_run, make_session, make_starts


def run(session, start=make_run, budget_s=None, decide=find_next, save=lambda count: None):
    """Return the loop that has run a session, the saved events, and what was shown: candidates and events."""
    saved, shown = [], ([], [])

    def save_event(event):
        save(len(saved))
        saved.append(event)

    loop = SessionLoop(
        session, make_starts(session), start, save_event, find_next=decide,
        show_start=lambda *start: shown[0].append(start[2]), show_event=shown[1].append,
    )  # fmt: skip
    with catch_interrupts() as loop.arrived:
        loop.run(budget_s)
    return loop, saved, shown


def before(at, act):
    """A function that makes runs, and acts before the one with a number or of a candidate."""

    def start(candidate, number, round_number):
        if at in (number, candidate.candidate.name):
            act()
        return make_run(candidate, number, round_number)

    return start


def at_event(at, act):
    return lambda count: act() if count == at else None


def fail(message="disk full"):
    raise LaunchError(message)


def kinds(saved):
    return [event["event"] for event in saved]


def test_runs_each_candidate_once_per_round_and_saves_each_run():
    loop, saved, shown = run(make_session())
    runs = loop.session.runs
    assert (loop.session.ended, loop.error) == ("decided", None)
    assert [each.number for each in runs] == list(range(3 * (ROUNDS + 1)))
    for number in range(ROUNDS + 1):
        own = runs[3 * number : 3 * number + 3]
        assert ({each.candidate for each in own}, {each.round for each in own}) == ({*NAMES}, {number})
    assert kinds(saved) == [RUN] * len(runs) + [ENDED]
    assert shown == ([each.candidate for each in runs], saved)


def test_the_order_is_random_and_depends_on_the_seed_alone():
    rounds = [NextRound(round=number, candidates=NAMES) for number in range(1, 41)]
    orders = [make_order(upcoming, 7) for upcoming in rounds]
    assert len(set(orders)) == 6  # all orders of three candidates
    swapped = [upcoming.replace(candidates=NAMES[::-1]) for upcoming in rounds]
    assert orders == [make_order(upcoming, 7) for upcoming in swapped]
    assert orders != [make_order(upcoming, 8) for upcoming in rounds]


def test_a_candidate_that_leaves_is_an_event_and_a_finished_session_adds_none():
    def decide(session):
        dropped = (("smt=2", "slow"),) if len(session.runs) in (6, 18) else ()
        return find_next(session).replace(dropped=dropped)

    loop, saved, _ = run(make_session(), decide=decide)
    assert [at for at, kind in enumerate(kinds(saved)) if kind == DROP] == [6, 19]
    assert run(loop.session, decide=decide)[1] == []


@pytest.mark.parametrize(("budget_s", "rounds"), [(0.0, 0), (3.3, 1), (1000.0, ROUNDS)])
def test_stops_before_a_round_that_would_exceed_the_budget(budget_s, rounds, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])

    def start(candidate, number, round_number):
        made = make_run(candidate, number, round_number)
        now[0] += max(made.wall_s) if round_number else 0.0
        return made

    loop, saved, _ = run(make_session(), start=start, budget_s=budget_s)
    assert len(loop.session.runs) == 3 * (rounds + 1)
    assert saved[-1]["reason"] == loop.session.ended
    assert (f"budget of {budget_s:g} s" in loop.session.ended) == (rounds < ROUNDS)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("saving", [False, True])
def test_a_signal_keeps_the_runs_before_and_the_run_that_is_saved(number, saving):
    """Memory and the results file have the same runs."""
    handler = signal.getsignal(number)
    act = lambda: signal.raise_signal(number)  # noqa: E731 - of this thread: pytest-xdist has others
    acting = {"save": at_event(4, act)} if saving else {"start": before(5, act)}
    loop, saved, _ = run(make_session(), **acting)
    assert loop.arrived == [number]
    assert (loop.session.ended, len(loop.session.runs), loop.error) == ("interrupted", 5, None)
    assert kinds(saved) == [RUN] * 5 + [ENDED]
    assert signal.getsignal(number) is handler


def test_a_candidate_that_cannot_start_has_failed():
    loop, _, _ = run(make_session(), start=before("smt=2", lambda: fail("no such command")))
    failed = [each for each in loop.session.runs if each.candidate == "smt=2"]
    assert {(each.status, each.reason) for each in failed} == {(Status.FAILED, "no such command")}
    assert loop.session.ended == "decided"


def test_an_error_stops_the_session_and_keeps_the_runs_before():
    loop, saved, _ = run(make_session(), start=before(7, lambda: 1 / 0))
    assert isinstance(loop.error, ZeroDivisionError)
    assert len(loop.session.runs) == 7
    assert "division by zero" in loop.session.ended
    assert saved[-1]["event"] == ENDED
    loop, _, _ = run(make_session(), save=at_event(3, fail))
    assert (loop.error.message, len(loop.session.runs)) == ("disk full", 4)
