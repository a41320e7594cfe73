"""Shows how long a session takes: a line that rich draws on a terminal, elsewhere a note.

The line is replaced before each run. No thread refreshes it: threads and forks do not mix, and a thread would
use CPU time of the ranks. The cursor stays visible, so there is nothing to restore if ompbind is killed.
"""

import math
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from statistics import median
from typing import Any

from ompbind.bench.records import NextRound, Session
from ompbind.bench.session import ShowStart, estimate_run_s
from ompbind.bench.table import render_run_time
from ompbind.cli.console import print_message, read_screen
from ompbind.report.text import render_age
from ompbind.text import clean_line


class ProgressLine:
    """One line: the round, the candidate that runs, and the time left."""

    def __init__(self, live: Any, budget_s: float) -> None:
        self._live = live
        self._stop_at = time.monotonic() + budget_s
        self._round = -1
        self._end_at: float | None = None

    def show_start(self, session: Session, upcoming: NextRound, candidate: str) -> None:
        """Replace the line; the time left is estimated once per round, the first time after the first run.

        A terminal that is gone does not stop the session: it may run with nohup.
        """
        if self._round != upcoming.round or self._end_at is None:
            self._round = upcoming.round
            most_s = _estimate_most_s(session, upcoming)
            self._end_at = None if most_s is None else min(self._stop_at, time.monotonic() + most_s)
        run_s = estimate_run_s(session, candidate)
        span = "" if run_s is None else f" ({render_run_time(run_s)})"
        number = f"round {upcoming.round}/{session.rules.max_rounds}" if upcoming.round else "warm-up"
        parts = [f"{number}: {clean_line(candidate)}{span}"]
        if self._end_at is not None:
            parts.append(f"at most {render_age(self._end_at - time.monotonic())} left")
        from rich.text import Text  # noqa: PLC0415 - door: rich

        self._live.console.width = read_screen(sys.stderr).width - 1
        with suppress(OSError):
            self._live.update(Text(", ".join(parts), no_wrap=True, overflow="ellipsis"), refresh=True)


def _estimate_most_s(session: Session, upcoming: NextRound) -> float | None:
    """Return the seconds that a session takes at most from the start of a round on; None if not known."""
    times = [run_s for name in upcoming.candidates if (run_s := estimate_run_s(session, name)) is not None]
    runs = len(upcoming.candidates) * (1 + max(0, session.rules.max_rounds - upcoming.round))
    return sum(times) / len(times) * runs if times else None


class TimeNote:
    """Prints how long a session takes at most, as soon as the time of a run is known."""

    def __init__(self, budget_s: float) -> None:
        self._budget_s = budget_s
        self._is_printed = False

    def show_start(self, session: Session, upcoming: NextRound, candidate: str) -> None:
        """Print the time at the start of the second run, or of the first run of a resumed session."""
        most_s = None if self._is_printed else _estimate_most_s(session, upcoming)
        if most_s is not None:
            self._is_printed = True
            run_s = median(max(run.wall_s) for run in session.runs if run.wall_s)
            most = render_age(min(most_s, self._budget_s))
            text = f"a run takes {render_run_time(run_s)}, so the session takes {most} at most"
            print_message(f"note: {text}; a clear result needs less")


@contextmanager
def open_progress(*, quiet: bool, budget_s: float | None) -> Iterator[ShowStart | None]:
    """Yield what is called before each run to show the time left; None if nothing is shown.

    On a terminal, standard error has a line with the progress, which is removed at the end; elsewhere only a
    note after the first run.
    """
    most_s = math.inf if budget_s is None else budget_s
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    if quiet or not is_terminal or os.environ.get("TERM", "dumb") == "dumb":
        yield None if quiet else TimeNote(most_s).show_start
        return
    from rich.console import Console  # noqa: PLC0415 - door: rich
    from rich.live import Live  # noqa: PLC0415 - door: rich

    console = Console(file=sys.stderr)
    live = Live(
        console=console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
    )
    with suppress(OSError):
        live.start()
        console.show_cursor()  # rich hides it, and could not show it after SIGKILL
    try:
        yield ProgressLine(live, most_s).show_start
    finally:
        with suppress(OSError):
            live.stop()
