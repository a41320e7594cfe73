"""What is shown while a session runs: a line on the terminal, and with --format jsonl each event.

The line is replaced before each run. No thread refreshes it: threads and forks do not mix, and a thread would
use CPU time of the ranks. It hides no cursor, so there is nothing to restore if ompbind is killed.
"""

import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from ompbind.bench.conclusions import NextRound
from ompbind.bench.progress import estimate_most_s, find_best_so_far
from ompbind.bench.records import Phase, Session
from ompbind.bench.session import SessionListener, estimate_run_s
from ompbind.bench.session_events import Event, make_header, make_run_event, render_event
from ompbind.cli.console import read_screen, write_stdout
from ompbind.cli.options.values import Values
from ompbind.report.ps import render_age
from ompbind.report.text import clip
from ompbind.text import clean_line


class _Listeners:
    """Several listeners as one, which may be none."""

    def __init__(self, listeners: Iterable[SessionListener]) -> None:
        self._listeners = tuple(listeners)

    def show_start(self, session: Session, upcoming: NextRound, candidate: str) -> None:
        for listener in self._listeners:
            listener.show_start(session, upcoming, candidate)

    def show_event(self, event: Event) -> None:
        for listener in self._listeners:
            listener.show_event(event)


class EventStream:
    """Prints each event on standard output."""

    def __init__(self, session: Session) -> None:
        """Print the events of a session until now: its header, and runs of an earlier start."""
        self.show_event(make_header(session))
        for run in session.runs:
            self.show_event(make_run_event(run))

    def show_start(self, session: Session, upcoming: NextRound, candidate: str) -> None:
        """Do nothing: the event of a run comes at its end."""

    def show_event(self, event: Event) -> None:
        """Print an event as one line."""
        write_stdout(render_event(event))


class ProgressLine:
    """One line on a terminal: the candidate that runs, the round, the time left and the best so far."""

    def __init__(self, budget_s: float | None) -> None:
        self._stop_at = float("inf") if budget_s is None else time.monotonic() + budget_s
        self._round: tuple[Phase, int] | None = None
        self._end_at: float | None = None

    def show_start(self, session: Session, upcoming: NextRound, candidate: str) -> None:
        """Replace the line; the time left is estimated once per round."""
        if self._round != (upcoming.phase, upcoming.round):
            self._round = (upcoming.phase, upcoming.round)
            most_s = estimate_most_s(session, upcoming)
            self._end_at = None if most_s is None else min(self._stop_at, time.monotonic() + most_s)
        self._replace(", ".join(self._make_parts(session, upcoming, candidate)))

    def _make_parts(self, session: Session, upcoming: NextRound, candidate: str) -> Iterator[str]:
        run_s = estimate_run_s(session, candidate)
        span = "" if run_s is None else f" ({render_age(run_s) if run_s >= 10 else f'{run_s:.2g} s'})"
        yield f"{_name_round(session, upcoming)}: {clean_line(candidate)}{span}"
        if self._end_at is not None:
            yield f"at most {render_age(self._end_at - time.monotonic())} left"
        best = find_best_so_far(session, candidate)
        if best:
            yield f"best so far: {clean_line(best)}"

    def show_event(self, event: Event) -> None:
        """Do nothing: the line changes before the next run."""

    def erase(self) -> None:
        """Remove the line."""
        self._replace("")

    def _replace(self, text: str) -> None:
        """Write a line in place of the last one, as far as it fits; leave the cursor at its start.

        A terminal that is gone does not stop the session: it may run with nohup.
        """
        line = clip(text, read_screen(sys.stderr).width - 1)
        with suppress(OSError):
            sys.stderr.write(f"\r\x1b[2K{line}\r" if text else "\r\x1b[2K")
            sys.stderr.flush()


def _name_round(session: Session, upcoming: NextRound) -> str:
    """Return the name of a round: "warm-up", "choice 5/40"."""
    number = "" if upcoming.phase is Phase.WARM_UP else f" {upcoming.round}/{session.rules.max_rounds}"
    return f"{upcoming.phase.value}{number}"


@contextmanager
def open_listener(session: Session, values: Values) -> Iterator[SessionListener]:
    """Yield what shows a session: events with --format jsonl, progress if standard error is a terminal."""
    streams = values["format"] == "jsonl"
    listeners: list[SessionListener] = [EventStream(session)] if streams else []
    is_mixed = streams and sys.stdout is not None and sys.stdout.isatty()
    if values["quiet"] or is_mixed or not _can_replace_lines():
        yield _Listeners(listeners)
        return
    line = ProgressLine(values["budget"])
    try:
        yield _Listeners([*listeners, line])
    finally:
        line.erase()


def _can_replace_lines() -> bool:
    """Return whether standard error is a terminal that can replace a line."""
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
