"""Signals without handlers that do anything: they wait, or are bytes in a pipe, until a loop decides."""

import os
import signal
from collections.abc import Iterable

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)
"""Signals that ask a run to end: they are passed on, and begin the ladder."""

_OWN = "KILL STOP CHLD PIPE TTIN TTOU SEGV BUS FPE ILL TRAP ABRT SYS XFSZ"
"""Signals that nobody can catch, or that tell a process of itself."""

PASSED_ON = tuple(
    sorted(signal.valid_signals() - {signal.Signals[f"SIG{name}"] for name in _OWN.split()} - set(STOPPING))
)
"""All other signals that can be caught are only passed on to every rank: HUP, USR1, WINCH and so on."""

BACKGROUND = (signal.SIGTTIN, signal.SIGTTOU)
"""Signals that must not stop the one who has to see all others through."""


def block_signals() -> frozenset[int]:
    """Block all signals, so that processes can be forked before any is handled; returns the mask before."""
    return frozenset(signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()))


def hold_signals(mask: frozenset[int]) -> frozenset[int]:
    """Keep signals that can be caught, ends of children among them, for `sigwait`, and return which.

    None gets lost so between a look and a sleep. Those that the caller had ignored stay so; `mask` is what
    the caller had blocked.
    """
    heard = _find_heard()
    signal.pthread_sigmask(signal.SIG_SETMASK, mask | heard)
    return heard


def note_signals(pipe: int, mask: frozenset[int]) -> None:
    """Note the same signals as bytes in a pipe from now on, and let them in; its end must not block."""
    signal.set_wakeup_fd(pipe, warn_on_full_buffer=False)
    heard = _find_heard()
    for number in heard:
        signal.signal(number, _note)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask - heard)


def _find_heard() -> frozenset[int]:
    """Ignore what would stop this process in the background, and return the signals that are heard."""
    for number in BACKGROUND:
        signal.signal(number, signal.SIG_IGN)
    return frozenset((*find_unignored((*STOPPING, *PASSED_ON)), signal.SIGCHLD))


def end_noting(mask: frozenset[int]) -> None:
    """Give all signals their usual effect again: there is nothing left to see through.

    `mask` is what the caller had blocked; what asks to end is let in.
    """
    for number in (*STOPPING, *PASSED_ON):
        if signal.getsignal(number) is _note:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask - {*STOPPING})


def find_unignored(numbers: Iterable[int]) -> tuple[int, ...]:
    """Return those of some signals that are not ignored."""
    return tuple(number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN)


def read_noted(pipe: int) -> list[int] | None:
    """Return the signals noted since the last call, each once, in the order of their last coming.

    None when the pipe has ended: whoever noted them is gone.
    """
    data = os.read(pipe, 1 << 16)
    return list(dict.fromkeys(reversed(data)))[::-1] if data else None


def _note(number: int, frame: object) -> None:
    """Do nothing: the pipe has noted the signal."""
