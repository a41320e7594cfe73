"""`ompbind inspect --watch`: look again and again, on the screen of a terminal or one after the other."""

import signal
import time
from collections.abc import Callable
from types import FrameType

from rich.console import Console, RenderableType
from rich.live import Live

from ompbind.cli.console import NARROW, say
from ompbind.inspection.sampler import take_look
from ompbind.inspection.sampling import Glance, Look, compare_looks
from ompbind.inspection.targets import Target, find_all
from ompbind.inspection.verdict import Level
from ompbind.report.live_view import Room, make_view

FIRST_S = 0.3  # seconds between the first two looks, before which there is nothing to show


def watch_target(target: Target | None, interval_s: float) -> int:
    """Show a target until all of it has ended, or somebody interrupts; None is every live run.

    Returns 1 when the last look saw a problem. What is no terminal gets one view after the other.
    """
    console = Console(highlight=False, soft_wrap=False)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)  # so that the screen is put back
    seen: list[Level] = []
    try:
        if console.is_terminal and not console.is_dumb_terminal:
            with Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
                _watch((target, interval_s), lambda view: live.update(view, refresh=True), (console, seen))
        else:
            _watch((target, interval_s), lambda view: _print(console, view), (console, seen))
        say("no process is left to watch")
    except KeyboardInterrupt:
        pass
    return 1 if seen and seen[-1] is Level.PROBLEM else 0


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _print(console: Console, view: RenderableType) -> None:
    """Print a view among others; whoever reads a pipe gets it at once."""
    console.print(view)
    console.print()
    console.file.flush()


def _watch(
    what: tuple[Target | None, float],
    show: Callable[[RenderableType], None],
    where: tuple[Console, list[Level]],
) -> None:
    """Look and show until nothing is left; notes the level of every look."""
    target, interval_s = what
    console, seen = where
    before = _look(target)
    time.sleep(min(FIRST_S, interval_s))
    while True:
        after = _look(target)
        if not after.inspection.crews:
            return
        seen.append(after.inspection.level)
        show(_make_view(compare_looks(before, after), interval_s, console))
        before = after
        time.sleep(interval_s)


def _look(target: Target | None) -> Look:
    return take_look(target or find_all())


def _make_view(glance: Glance, interval_s: float, console: Console) -> RenderableType:
    head = f"ompbind inspect  {time.strftime('%H:%M:%S')}  every {interval_s:g} s"
    width, height = console.size if console.is_terminal else (80, 48)
    draws = (console.encoding or "").lower().replace("-", "") == "utf8"
    head += "  Ctrl-C ends" if console.is_terminal else ""
    return make_view(glance, head, Room(width=max(width, NARROW), height=height, draws=draws))
