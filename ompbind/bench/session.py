"""The main loop of a session: asks which candidates run next, runs them in random order, and saves each run.

A session that is resumed in the middle of a round runs the candidates that are missing there, in the order
that they had.
"""

import random
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from statistics import median
from typing import TypeAlias

from ompbind.bench.decision import find_next
from ompbind.bench.records import NextRound, Run, Session, Status
from ompbind.bench.results import DROP, ENDED, RUN, Event, make_event
from ompbind.bench.run_candidate import CandidateStart, TimeIsUp, delay_interrupts, limit_time
from ompbind.errors import OmpbindError

INTERRUPTED = "interrupted"  # why a session is over that a signal has stopped

RunStart: TypeAlias = Callable[[CandidateStart, int, int], Run]
"""Makes the run of a candidate with a number, in a round; raises KeyboardInterrupt and OmpbindError."""

ShowStart: TypeAlias = Callable[[Session, NextRound, str], None]
"""Called before each run: shows which candidate of a round runs now."""


class SessionLoop:
    """Runs a session, or resumes it: `session` has all runs so far, `error` is what stopped it.

    Candidates that fail do not stop a session. `save` writes an event to the results file; `show_event` gets
    each event after it is saved. `find_next` returns the next round, or the rest of one that was stopped.
    """

    def __init__(
        self,
        session: Session,
        starts: Iterable[CandidateStart],
        run: RunStart,
        save: Callable[[Event], None],
        *,
        show_start: ShowStart | None = None,
        show_event: Callable[[Event], None] | None = None,
        find_next: Callable[[Session], NextRound] = find_next,
    ) -> None:
        self.session = session
        self.error: Exception | None = None
        self._starts = {start.candidate.name: start for start in starts}
        self._run, self._save, self._find_next = run, save, find_next
        self._show_start, self._show_event = show_start, show_event
        self._running = ""

    def run(
        self, budget_s: float | None = None, signals: AbstractContextManager[object] | None = None
    ) -> None:
        """Run rounds until the session is decided or its time is used up.

        A signal or an error stops it early, and so does the end of its time during a run; the session says
        why. Where signals are blocked, `signals` is a block in which they are handled.
        """
        try:
            with signals or nullcontext(), limit_time(budget_s):
                ended = self._run_rounds(budget_s)
        except TimeIsUp:
            ran = f"{self._running} ran; --timeout limits each run"
            ended = f"the budget of {budget_s:g} s was used up while {ran}"
        except KeyboardInterrupt:
            ended = INTERRUPTED
        except Exception as error:  # noqa: BLE001 - any error: the runs before it are shown first
            ended, self.error = f"stopped by an error: {error}", error
        try:
            if self.session.ended != ended:  # else it was finished before and only read again
                self._add(self.session.replace(ended=ended), {"event": ENDED, "reason": ended})
        except (OSError, OmpbindError) as error:
            self.error = self.error or error

    def _run_rounds(self, budget_s: float | None) -> str:
        """Run rounds until the session is over; return why."""
        began_at = time.monotonic()
        while True:
            upcoming = self._find_next(self.session)
            if upcoming.ended and self.session.ended == upcoming.ended:
                return upcoming.ended  # it was finished before, and is only read again
            for candidate, reason in upcoming.dropped:
                self._add(self.session, {"event": DROP, "candidate": candidate, "reason": reason})
            if not upcoming.candidates:
                return upcoming.ended
            for name in make_order(upcoming, self.session.rules.seed):
                self._running = name
                if budget_s is not None and upcoming.round:  # the warm-up always starts
                    left_s = began_at + budget_s - time.monotonic()
                    if (estimate_run_s(self.session, name) or 0.0) > left_s:
                        return f"the budget of {budget_s:g} s is used up: the next run would exceed it"
                if self._show_start:
                    self._show_start(self.session, upcoming, name)
                run = self._run_or_fail(name, upcoming.round)
                runs = (*self.session.runs, run)
                self._add(self.session.replace(runs=runs, ended=""), make_event(RUN, run))

    def _run_or_fail(self, name: str, round_number: int) -> Run:
        """Run a candidate; if its ranks cannot be started, it has failed."""
        number, began = len(self.session.runs), time.time()
        try:
            return self._run(self._starts[name], number, round_number)
        except OmpbindError as error:
            failed = Run(candidate=name, number=number, round=round_number, started=began)
            return failed.replace(status=Status.FAILED, reason=error.message)

    def _add(self, session: Session, event: Event) -> None:
        with delay_interrupts():
            self.session = session
            self._save(event)
        if self._show_event:
            self._show_event(event)


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
