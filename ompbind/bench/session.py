"""The main loop of a session: asks which candidates run next, runs them in random order, and saves each run.

A session that is resumed in the middle of a round runs the candidates that are missing there, in the order
that they had.
"""

import random
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from statistics import median
from typing import Protocol, TypeAlias

from ompbind.bench.comparing import make_index
from ompbind.bench.records import NextRound, Run, Session, Status
from ompbind.bench.results import RUN, Event, make_drop_event, make_end_event, make_event
from ompbind.bench.start_ranks import CandidateStart, Slot, TimeIsUp, delay_interrupts, limit_time
from ompbind.errors import OmpbindError
from ompbind.record import Record

INTERRUPTED = "interrupted"
"""Why a session is over that a signal has stopped."""

VERIFIED_ROUNDS = 10
"""Rounds whose number is a multiple of this are verified, also the warm-up with the number 0.

All candidates of these rounds are verified, except those without a plan. A sample takes some 10 ms of CPU
time, also from ranks if they have all CPUs. As that is one round of ten, it hardly changes a median.
"""


class RunStart(Protocol):
    """Runs a candidate; raises KeyboardInterrupt after a signal, and OmpbindError if it cannot start."""

    def __call__(self, start: CandidateStart, slot: Slot, *, verify: bool) -> Run:
        """Run the ranks of a candidate, and wait until all have exited."""


ShowStart: TypeAlias = Callable[[Session, NextRound, str], None]
"""Called before each run: shows which candidate of a round runs now."""


class SessionCalls(Record):
    """What a session calls: `run` runs a candidate, `save` writes an event to the results file.

    `find_next` returns the next round. If a round was stopped, that is the rest of it: the candidates that
    have not run in it. `show_event` gets each event after it is saved.
    """

    find_next: Callable[[Session], NextRound]
    run: RunStart
    save: Callable[[Event], None]
    show_start: ShowStart | None = None
    show_event: Callable[[Event], None] | None = None


class SessionEnd(Record):
    """The session with all its runs, and the error that stopped it, None for none.

    Candidates that fail do not stop a session.
    """

    session: Session
    error: Exception | None = None


def run_session(
    session: Session,
    starts: Iterable[CandidateStart],
    calls: SessionCalls,
    budget_s: float | None = None,
    signals: AbstractContextManager[object] | None = None,
) -> SessionEnd:
    """Run a session, or resume it, until it is decided or until the time is used up, and save each run.

    A signal or an error stops the session early, and so does the end of its time during a run. The runs
    before that are returned, and `ended` says why. Where signals are blocked, `signals` is a block in which
    they are handled.
    """
    recorder = _Recorder(session, calls)
    error: Exception | None = None
    try:
        with signals or nullcontext(), limit_time(budget_s):
            ended = _run_rounds(recorder, {start.candidate.name: start for start in starts}, budget_s)
    except TimeIsUp:
        ran = f"{recorder.running} ran; --timeout limits each run"
        ended = f"the budget of {budget_s:g} s was used up while {ran}"
    except KeyboardInterrupt:
        ended = INTERRUPTED
    except Exception as stopping:  # noqa: BLE001 - any error: the runs before it are shown first
        ended, error = f"stopped by an error: {stopping}", stopping
    try:
        recorder.end(ended)
    except (OSError, OmpbindError) as stopping:
        error = error or stopping
    return SessionEnd(session=recorder.session, error=error)


class _Recorder:
    """The session as it grows: each event is in memory, in the results file, and shown."""

    def __init__(self, session: Session, calls: SessionCalls) -> None:
        self.session = session
        self.calls = calls
        self.running = ""

    def end(self, reason: str) -> None:
        """End the session; if it was finished before and only read again, it has this event already."""
        if self.session.ended != reason:
            self.add(self.session.replace(ended=reason), make_end_event(reason))

    def add(self, session: Session, event: Event) -> None:
        with delay_interrupts():
            self.session = session
            self.calls.save(event)
        if self.calls.show_event:
            self.calls.show_event(event)


def _run_rounds(recorder: _Recorder, starts: Mapping[str, CandidateStart], budget_s: float | None) -> str:
    """Run rounds until the session is over; return why."""
    began_at = time.monotonic()
    while True:
        upcoming = recorder.calls.find_next(recorder.session)
        if upcoming.ended and recorder.session.ended == upcoming.ended:
            return upcoming.ended  # it was finished before, and is only read again
        for candidate, reason in upcoming.dropped:
            recorder.add(recorder.session, make_drop_event(candidate, reason))
        if not upcoming.candidates:
            return upcoming.ended
        if budget_s is not None and upcoming.round:  # the warm-up always starts
            left_s = began_at + budget_s - time.monotonic()
            if (estimate_round_s(recorder.session, upcoming) or 0.0) > left_s:
                return f"the next round would exceed the budget of {budget_s:g} s"
        for name in make_order(upcoming, recorder.session.rules.seed):
            recorder.running = name
            if recorder.calls.show_start:
                recorder.calls.show_start(recorder.session, upcoming, name)
            run = _run_or_fail(recorder, starts[name], upcoming)
            grown = recorder.session.replace(runs=(*recorder.session.runs, run), ended="")
            recorder.add(grown, make_event(RUN, run))


def _run_or_fail(recorder: _Recorder, start: CandidateStart, upcoming: NextRound) -> Run:
    """Run a candidate; if its ranks cannot be started, it has failed."""
    slot = Slot(number=len(recorder.session.runs), round=upcoming.round)
    began = time.time()
    try:
        return recorder.calls.run(start, slot, verify=slot.round % VERIFIED_ROUNDS == 0)
    except OmpbindError as error:
        return Run(
            candidate=start.candidate.name,
            number=slot.number,
            round=slot.round,
            started=began,
            status=Status.FAILED,
            reason=error.message,
        )


def make_order(upcoming: NextRound, seed: int) -> tuple[str, ...]:
    """Return the candidates of a round in random order.

    Each candidate has a random number for the seed and the round. So the rest of a round that was stopped
    has the order that it had in the whole round.
    """
    start = f"{seed} {upcoming.round}"
    return tuple(sorted(upcoming.candidates, key=lambda name: random.Random(f"{start} {name}").random()))


def estimate_run_s(session: Session, candidate: str) -> float | None:
    """Return the median time of the runs of a candidate, in seconds; None without runs."""
    times = [max(run.wall_s) for run in session.runs if run.candidate == candidate and run.wall_s]
    return median(times) if times else None


def estimate_round_s(session: Session, upcoming: NextRound) -> float | None:
    """Return the seconds that a round takes, from the runs so far; None if no candidate has run."""
    times = [estimate_run_s(session, name) for name in upcoming.candidates]
    known = [run_s for run_s in times if run_s is not None]
    return sum(known) / len(known) * len(times) if known else None


def find_best_so_far(session: Session, candidate: str) -> str:
    """Return the candidate with the best median, among candidates with the same work as this candidate.

    Returns "" without runs. Warm-ups do not count. This claims nothing: see `decision`.
    """
    ranks = {each.name: each.ranks for each in session.candidates}
    values = make_index(session).values
    comparable = [name for name in values if session.rules.same_work or ranks[name] == ranks[candidate]]
    sign = -1 if session.metrics[0].higher else 1
    return min(comparable, key=lambda name: sign * median(values[name]), default="")


def estimate_most_s(session: Session, upcoming: NextRound) -> float | None:
    """Return the seconds that a session takes at most from the start of a round on; None if not known."""
    round_s = estimate_round_s(session, upcoming)
    if round_s is None:
        return None
    return round_s * (1 + max(0, session.rules.max_rounds - upcoming.round))
