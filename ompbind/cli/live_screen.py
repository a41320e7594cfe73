"""A view that replaces itself on a terminal, and the keys and signals that arrive meanwhile.

The view is on the alternate screen of the terminal, without a cursor; keys are read without Enter and echo.
Handlers of signals do nothing: Python writes a byte for each to a pipe. So no signal interrupts the code that
restores the terminal. It is restored at the end, after an error, and while Ctrl-Z stops the process.
"""

import os
import select
import signal
import sys
import termios
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

from ompbind.cli.console import write_stdout
from ompbind.execution.signals import find_unignored, read_signals
from ompbind.record import Record

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


@contextmanager
def open_screen(*, is_terminal: bool) -> Iterator[LiveScreen]:
    """Prepare the terminal and the handlers of signals for views; restore them at the end."""
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    numbers = (*_QUITTING, signal.SIGWINCH, signal.SIGTSTP) if is_terminal else _QUITTING
    before = {number: signal.signal(number, _do_nothing) for number in find_unignored(numbers)}
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        screen = _make_screen(reading, is_terminal=is_terminal)
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


def _do_nothing(number: int, frame: object) -> None:
    """Handle a signal by doing nothing: Python has written its number to the pipe."""


def _make_screen(signals: int, *, is_terminal: bool) -> LiveScreen:
    if not (is_terminal and sys.stdin and sys.stdin.isatty()):
        return LiveScreen(is_terminal=is_terminal, signals=signals)
    keys = sys.stdin.fileno()
    return LiveScreen(is_terminal=True, signals=signals, keys=keys, modes=tuple(termios.tcgetattr(keys)))


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
    return _read_key(ready[0]) if ready else ViewEvent.TIMEOUT


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


def _read_key(keys: int) -> ViewEvent:
    """Read the keys that were pressed; the last one counts. The terminal was closed if there are none."""
    try:
        pressed = os.read(keys, 64)
    except OSError:
        pressed = b""
    return _KEYS.get(pressed[-1:], ViewEvent.REDRAW) if pressed else ViewEvent.QUIT
