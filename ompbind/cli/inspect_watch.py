"""`ompbind inspect --watch`: refresh a view on a terminal; in a pipe print one view after the other.

On a terminal, the view is on the alternate screen without a cursor; keys are read without Enter and echo.
Handlers of signals do nothing: Python writes a byte for each to a pipe, so no signal interrupts the code that
restores the terminal. It is restored at the end, after an error, and while Ctrl-Z stops the process.
"""

import os
import select
import signal
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

from ompbind.cli.console import print_message, read_screen, write_stdout
from ompbind.cli.other_options import INTERVAL_S
from ompbind.execution.signals import find_unignored, read_signals
from ompbind.inspection.samples import SampleDelta, SampleHistory, compare_samples, sum_costs, take_sample
from ompbind.inspection.targets import Target, find_all_runs
from ompbind.record import Record
from ompbind.report.live_view import render_view
from ompbind.report.text import Screen
from ompbind.text import Severity

_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l\x1b[?7l", "\x1b[m\x1b[?7h\x1b[?25h\x1b[?1049l"
"""Escape sequences: show the alternate screen, hide the cursor, cut long lines; and the reverse."""

_QUITTING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class ViewEvent(StrEnum):
    """Why a wait is over: a key, a signal, or its time limit."""

    QUIT = "quit"
    PAUSE = "pause"
    REDRAW = "redraw"
    TIMEOUT = "timeout"


_KEYS = {b"q": ViewEvent.QUIT, b"Q": ViewEvent.QUIT, b" ": ViewEvent.PAUSE}


class LiveScreen(Record):
    """Where views are shown: on a terminal a view replaces the last one, else it follows the last one.

    `signals` is the read end of the pipe of signals. `keys` is standard input, None if it is no terminal;
    `modes` are its modes before.
    """

    is_terminal: bool
    signals: int
    keys: int | None = None
    modes: Sequence[Any] = ()


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


@contextmanager
def open_screen(*, is_terminal: bool) -> Iterator[LiveScreen]:
    """Prepare the terminal and the handlers of signals for views; restore them at the end."""
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    numbers = (*_QUITTING, signal.SIGWINCH, signal.SIGTSTP) if is_terminal else _QUITTING
    before = {number: signal.signal(number, lambda *_: None) for number in find_unignored(numbers)}
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        screen = LiveScreen(is_terminal=is_terminal, signals=reading)
        if is_terminal and sys.stdin and sys.stdin.isatty():
            keys = sys.stdin.fileno()
            screen = screen.replace(keys=keys, modes=tuple(termios.tcgetattr(keys)))
        try:
            _enter(screen)
            yield screen
        finally:
            _leave(screen)
    finally:
        signal.set_wakeup_fd(-1)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(reading)
        os.close(writing)


def _enter(screen: LiveScreen) -> None:
    if screen.keys is not None:
        modes = list(screen.modes)
        modes[3] &= ~(termios.ICANON | termios.ECHO)
        termios.tcsetattr(screen.keys, termios.TCSANOW, modes)
    if screen.is_terminal:
        _write(_ENTER)


def _leave(screen: LiveScreen) -> None:
    """Restore the terminal; if it no longer exists, do nothing."""
    try:
        if screen.is_terminal:
            _write(_LEAVE)
        if screen.keys is not None:
            termios.tcsetattr(screen.keys, termios.TCSANOW, list(screen.modes))
    except (OSError, termios.error):
        pass


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def show_view(screen: LiveScreen, lines: Sequence[str]) -> None:
    """Replace the last view by these lines, which fit the terminal; else print them and an empty line."""
    if screen.is_terminal:
        *others, last = lines
        _write("\x1b[H" + "\r\n".join([*(f"\x1b[K{line}" for line in others), f"\x1b[J{last}"]))
    else:
        write_stdout("\n".join([*lines, ""]))


def wait_for_event(screen: LiveScreen, timeout_s: float | None) -> ViewEvent:
    """Wait for a key or a signal, or until the time is over; None is no limit."""
    files = [screen.signals] if screen.keys is None else [screen.signals, screen.keys]
    ready, _, _ = select.select(files, [], [], timeout_s)
    if screen.signals in ready:
        return _handle_signals(screen, read_signals(screen.signals) or [])
    if not ready:
        return ViewEvent.TIMEOUT
    try:
        pressed = os.read(ready[0], 64)
    except OSError:
        pressed = b""  # as if the terminal was closed
    return _KEYS.get(pressed[-1:], ViewEvent.REDRAW) if pressed else ViewEvent.QUIT


def _handle_signals(screen: LiveScreen, numbers: Sequence[int]) -> ViewEvent:
    if any(number in _QUITTING for number in numbers):
        return ViewEvent.QUIT
    if signal.SIGTSTP in numbers:
        _leave(screen)
        handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)  # returns when the shell continues this process
        signal.signal(signal.SIGTSTP, handler)
        _enter(screen)
    return ViewEvent.REDRAW
