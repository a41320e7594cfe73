"""`ompbind inspect --watch`: refresh a view on a terminal; in a pipe print one view after the other."""

import os
import sys
import time

from ompbind.cli.console import print_message, read_screen, write_stdout
from ompbind.cli.live_screen import LiveScreen, ViewEvent, open_screen, show_view, wait_for_event
from ompbind.cli.other_options import INTERVAL_S
from ompbind.inspection.samples import SampleDelta, SampleHistory, compare_samples, sum_costs, take_sample
from ompbind.inspection.targets import Target, find_all_runs
from ompbind.record import Record
from ompbind.report.live_view import render_view
from ompbind.report.text import Screen
from ompbind.text import Severity

_FIRST_S = 0.3  # seconds between the first two samples: a view shows the difference of two
_PIPE_LINES = 48  # lines of a view in a pipe

_KEYS_HELP = "  q: quit  space: pause"

_MOST_SHARE = 0.007
"""CPU time at most, divided by wall time, unless the user has chosen the interval.

Readings of the memory of each NUMA node are not included: they have a limit of their own.
"""


class _ShownView(Record):
    """What is shown: the difference of the last two samples, the time of day, the seconds until the next."""

    delta: SampleDelta
    clock: str
    pause_s: float
    paused: bool = False


class _Watched(Record):
    """What was watched: the last view with processes, its severity, and whether all processes have exited."""

    view: _ShownView | None = None
    severity: Severity = Severity.OK
    is_over: bool = False


def watch_target(target: Target | None, interval_s: float | None) -> int:
    """Show a target until all its processes have exited, or until the user quits; None is all live runs.

    Without an interval, the samples are so rare that the view takes less than 1 % of a CPU. Returns the exit
    code: 1 if the last sample with processes has an error.
    """
    is_terminal = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    with open_screen(is_terminal=is_terminal) as screen:
        watched = _watch(target, interval_s, screen)
    if watched.is_over:
        if is_terminal and watched.view:
            write_stdout("\n".join(_render(watched.view, read_screen(), keys="")))
        print_message("no processes left to watch")
    return 1 if watched.severity is Severity.ERROR else 0


def _watch(target: Target | None, interval_s: float | None, screen: LiveScreen) -> _Watched:
    """Take samples and show them until all processes have exited, or until the user quits."""
    watched, shown = _Watched(), None
    history, before = take_sample(target or find_all_runs(), SampleHistory())
    if not (before.live_runs or target or screen.is_terminal):
        print_message("no live runs yet: waiting for the first")
    spent_s, pause_s = time.thread_time(), min(_FIRST_S, interval_s or _FIRST_S)
    while _wait(screen, shown, pause_s) is not ViewEvent.QUIT:
        began_s = time.monotonic()
        history, after = take_sample(target or find_all_runs(), history)
        groups = after.inspection.groups
        if not groups and not after.live_runs and (target or watched.view):
            return watched.replace(is_over=True)
        cost_s = time.thread_time() - spent_s - sum_costs(history.memory, began_s)
        spent_s, pause_s = time.thread_time(), interval_s or max(float(INTERVAL_S), cost_s / _MOST_SHARE)
        clock = time.strftime("%H:%M:%S")
        shown = _ShownView(delta=compare_samples(before, after), clock=clock, pause_s=pause_s)
        if groups:
            watched = _Watched(view=shown, severity=after.inspection.severity)
        _show(screen, shown)
        before = after
    return watched


def _wait(screen: LiveScreen, shown: _ShownView | None, pause_s: float) -> ViewEvent:
    """Wait until the next sample is due or the user quits; meanwhile redraw what is shown if needed."""
    due_s, paused = time.monotonic() + pause_s, False
    while True:
        event = wait_for_event(screen, None if paused else max(0.0, due_s - time.monotonic()))
        if event in (ViewEvent.QUIT, ViewEvent.TIMEOUT):
            return event
        paused ^= event is ViewEvent.PAUSE
        if shown:
            _show(screen, shown.replace(paused=paused))


def _show(screen: LiveScreen, view: _ShownView) -> None:
    size = read_screen()
    if screen.is_terminal:
        show_view(
            screen, _render(view, size, keys=_KEYS_HELP if screen.keys is not None else "  Ctrl-C: quit")
        )
    elif view.delta.groups:
        show_view(screen, _render(view, size.replace(height=_PIPE_LINES), keys=""))


def _render(view: _ShownView, size: Screen, keys: str) -> tuple[str, ...]:
    every = "paused" if view.paused else f"every {view.pause_s:.3g} s"
    return render_view(view.delta, f"{view.clock}  {every}{keys}", size)
