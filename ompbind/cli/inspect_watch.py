"""`ompbind inspect --watch`: look again and again, on the screen of a terminal or one after the other."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from types import FrameType

from rich.console import Console, RenderableType
from rich.live import Live

from ompbind.cli.console import NARROW, draws_boxes, say
from ompbind.inspection.sampler import take_sample
from ompbind.inspection.sampling import Sample, SampleDelta, compare_samples
from ompbind.inspection.targets import Target, find_all
from ompbind.report.live_view import make_view
from ompbind.report.text import Screen
from ompbind.severity import Severity

FIRST_S = 0.3  # seconds between the first two looks, before which there is nothing to show


def watch_target(target: Target | None, interval_s: float) -> int:
    """Show a target until all of it has ended, or somebody interrupts; None is every live run.

    Returns 1 when the last look saw a problem. What is no terminal gets one view after the other.
    """
    console = Console(highlight=False, soft_wrap=False)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)  # so that the screen is put back
    last: Sample | None = None
    try:
        with _open_view(console) as show:
            for before, last in pairwise(_looks(target, interval_s)):
                show(_make_view(compare_samples(before, last), interval_s, console))
        say("no process is left to watch")
    except KeyboardInterrupt:
        pass
    return 1 if last and last.inspection.severity is Severity.ERROR else 0


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextmanager
def _open_view(console: Console) -> Iterator[Callable[[RenderableType], None]]:
    """Have what shows a view: in place of the one before on a terminal, else after it, at once."""

    def print_view(view: RenderableType) -> None:
        console.print(view)
        console.print()
        console.file.flush()

    if console.is_terminal and not console.is_dumb_terminal:
        with Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
            yield lambda view: live.update(view, refresh=True)
    else:
        yield print_view


def _looks(target: Target | None, interval_s: float) -> Iterator[Sample]:
    """Look again and again until nothing is left."""
    yield take_sample(target or find_all())
    time.sleep(min(FIRST_S, interval_s))
    while (look := take_sample(target or find_all())).inspection.crews:
        yield look
        time.sleep(interval_s)


def _make_view(delta: SampleDelta, interval_s: float, console: Console) -> RenderableType:
    head = f"ompbind inspect  {time.strftime('%H:%M:%S')}  every {interval_s:g} s"
    width, height = console.size if console.is_terminal else (80, 48)
    head += "  Ctrl-C ends" if console.is_terminal else ""
    screen = Screen(width=max(width, NARROW), height=height, draws=draws_boxes(console.encoding))
    return make_view(delta, head, screen)
