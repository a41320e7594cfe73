"""The line on a terminal that shows the progress of a session, drawn by rich.

The line is replaced before each run. No thread refreshes it: threads and forks do not mix, and a thread would
use CPU time of the ranks. The cursor stays visible, so there is nothing to restore if ompbind is killed.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from rich.console import Console
from rich.live import Live
from rich.text import Text

from ompbind.bench.events import Event
from ompbind.bench.records import NextRound, Session
from ompbind.bench.session import estimate_most_s, estimate_run_s, find_best_so_far
from ompbind.cli.console import read_screen
from ompbind.report.bench.measurements import render_run_time
from ompbind.report.text import render_age
from ompbind.text import clean_line


class ProgressLine:
    """One line: the round, the candidate that runs, the time left and the best so far."""

    def __init__(self, live: Live, budget_s: float | None) -> None:
        self._live = live
        self._stop_at = float("inf") if budget_s is None else time.monotonic() + budget_s
        self._round = -1
        self._end_at: float | None = None

    def show_start(self, session: Session, upcoming: NextRound, candidate: str) -> None:
        """Replace the line; the time left is estimated once per round, the first time after the first run.

        A terminal that is gone does not stop the session: it may run with nohup.
        """
        if self._round != upcoming.round or self._end_at is None:
            self._round = upcoming.round
            most_s = estimate_most_s(session, upcoming)
            self._end_at = None if most_s is None else min(self._stop_at, time.monotonic() + most_s)
        line = ", ".join(self._make_parts(session, upcoming, candidate))
        self._live.console.width = read_screen(sys.stderr).width - 1
        with suppress(OSError):
            self._live.update(Text(line, no_wrap=True, overflow="ellipsis"), refresh=True)

    def _make_parts(self, session: Session, upcoming: NextRound, candidate: str) -> Iterator[str]:
        run_s = estimate_run_s(session, candidate)
        span = "" if run_s is None else f" ({render_run_time(run_s)})"
        yield f"{_name_round(session, upcoming)}: {clean_line(candidate)}{span}"
        if self._end_at is not None:
            yield f"at most {render_age(self._end_at - time.monotonic())} left"
        best = find_best_so_far(session, candidate)
        if best:
            yield f"best so far: {clean_line(best)}"

    def show_event(self, event: Event) -> None:
        """Do nothing: the line changes before the next run."""


def _name_round(session: Session, upcoming: NextRound) -> str:
    """Return the name of a round: "warm-up", "round 5/40"."""
    return f"round {upcoming.round}/{session.rules.max_rounds}" if upcoming.round else "warm-up"


@contextmanager
def open_progress_line(budget_s: float | None) -> Iterator[ProgressLine]:
    """Yield the line on standard error, a terminal; remove the line at the end."""
    console = Console(file=sys.stderr)
    live = Live(
        console=console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
    )
    with suppress(OSError):
        live.start()
        console.show_cursor()  # rich hides it, and could not show it after SIGKILL
    try:
        yield ProgressLine(live, budget_s)
    finally:
        with suppress(OSError):
            live.stop()
