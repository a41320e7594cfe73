"""What is shown while a session runs: a line on the terminal, and with --format jsonl each event."""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from ompbind.bench.events import Event, make_header, make_run_event, render_event
from ompbind.bench.records import NextRound, Session
from ompbind.bench.session import SessionListener
from ompbind.cli.console import write_stdout
from ompbind.cli.settings import BenchSettings


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


@contextmanager
def open_listener(session: Session, settings: BenchSettings) -> Iterator[SessionListener]:
    """Yield what shows a session: events with --format jsonl, progress if standard error is a terminal."""
    streams = settings.format == "jsonl"
    listeners: list[SessionListener] = [EventStream(session)] if streams else []
    is_mixed = streams and sys.stdout is not None and sys.stdout.isatty()
    if settings.planning.quiet or is_mixed or not _can_replace_lines():
        yield _Listeners(listeners)
        return
    from ompbind.cli.progress_line import open_progress_line  # noqa: PLC0415 - door: rich

    with open_progress_line(settings.budget) as line:
        yield _Listeners([*listeners, line])


def _can_replace_lines() -> bool:
    """Return whether standard error is a terminal that can replace a line."""
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
