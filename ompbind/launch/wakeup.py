"""Signals as bytes in a pipe: handlers only note, a loop decides."""

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


def note_signals(pipe: int, mask: frozenset[int], always: Iterable[int] = ()) -> None:
    """Note signals as bytes in a pipe from now on, and let them in; the pipe's end must not block.

    Those that the caller had ignored stay so, but for `always`; `mask` is what the caller had blocked.
    """
    heard = find_unignored((*STOPPING, *PASSED_ON))
    for number in (*heard, *always):
        signal.signal(number, _note)
    for number in BACKGROUND:
        signal.signal(number, signal.SIG_IGN)
    signal.set_wakeup_fd(pipe, warn_on_full_buffer=False)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask - {*heard, *always})


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
