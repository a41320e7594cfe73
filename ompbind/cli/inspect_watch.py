"""`ompbind inspect --watch`: refresh a view on a terminal; in a pipe print one view after the other."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from types import FrameType

from rich.console import Console, RenderableType
from rich.live import Live

from ompbind.cli.console import NARROW, has_box_characters, print_message
from ompbind.inspection.compare_samples import Sample, SampleDelta, compare_samples
from ompbind.inspection.read_load import Streaks, add_load
from ompbind.inspection.take_sample import take_sample
from ompbind.inspection.targets import Target, find_all_runs
from ompbind.report.live_view import make_view
from ompbind.report.text import Screen
from ompbind.severity import Severity

FIRST_S = 0.3  # seconds between the first two samples: a view shows the difference of two


def watch_target(target: Target | None, interval_s: float) -> int:
    """Show a target until all its processes have exited, or until Ctrl-C; None is all live runs.

    Returns the exit code: 1 if the last sample has an error.
    """
    console = Console(highlight=False, soft_wrap=False)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)  # so that the terminal is restored
    last: Sample | None = None
    try:
        with _open_view(console) as show:
            for before, last in pairwise(_take_samples(target, interval_s)):
                show(_make_view(compare_samples(before, last), interval_s, console))
        print_message("no processes left to watch")
    except KeyboardInterrupt:
        pass
    return 1 if last and last.inspection.severity is Severity.ERROR else 0


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextmanager
def _open_view(console: Console) -> Iterator[Callable[[RenderableType], None]]:
    """Yield a function that shows a view: on a terminal it replaces the last view, else it follows it."""

    def print_view(view: RenderableType) -> None:
        console.print(view)
        console.print()
        console.file.flush()

    if console.is_terminal and not console.is_dumb_terminal:
        with Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
            yield lambda view: live.update(view, refresh=True)
    else:
        yield print_view


def _take_samples(target: Target | None, interval_s: float) -> Iterator[Sample]:
    """Sample a target until no process is left."""
    streaks: Streaks = {}
    yield take_sample(target or find_all_runs())
    time.sleep(min(FIRST_S, interval_s))
    while (sample := take_sample(target or find_all_runs())).inspection.groups:
        streaks, inspection = add_load(streaks, sample.inspection)
        yield sample.replace(inspection=inspection)
        time.sleep(interval_s)


def _make_view(delta: SampleDelta, interval_s: float, console: Console) -> RenderableType:
    head = f"ompbind inspect  {time.strftime('%H:%M:%S')}  every {interval_s:g} s"
    width, height = console.size if console.is_terminal else (80, 48)
    head += "  Ctrl-C to quit" if console.is_terminal else ""
    screen = Screen(width=max(width, NARROW), height=height, draws=has_box_characters(console.encoding))
    return make_view(delta, head, screen)
