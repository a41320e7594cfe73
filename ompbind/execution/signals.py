"""The signals that ompbind handles, and two ways to receive them: `sigwait`, or as bytes in a pipe."""

import os
import signal
from collections.abc import Iterable

from ompbind.record import Record

TERMINATION_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)
"""Signals that request the end of a run: they are forwarded, and start the escalation to SIGKILL."""

_NOT_FORWARDED = "KILL STOP CHLD PIPE TTIN TTOU SEGV BUS FPE ILL TRAP ABRT SYS XFSZ"
"""Signals that cannot be caught, or that are about the process that gets them."""

FORWARDED_SIGNALS = tuple(
    sorted(
        signal.valid_signals()
        - {*TERMINATION_SIGNALS, *(getattr(signal, f"SIG{name}") for name in _NOT_FORWARDED.split())}
    )
)
"""All other signals are forwarded to every rank and have no other effect: HUP, USR1, WINCH and so on."""

HOLD_S = 0.25
"""Seconds until a signal is forwarded in a job of Slurm, which may send it to all processes of a step."""

TTY_SIGNALS = (signal.SIGTTIN, signal.SIGTTOU)
"""Signals by which the kernel stops a background process that uses the terminal; ompbind ignores them."""


class Foreground(Record):
    """The process that the user started: its pid, its process group, and the pipe with its signals.

    `pipe` is the read end; the supervisor reads end of file there when the foreground process exits.
    Once the supervisor has closed it, the foreground process sends termination signals to the supervisor
    directly. `signal_mask` contains the signals that were blocked when ompbind was started.
    `default_tty_signals` are the members of `TTY_SIGNALS` that were not ignored at that time.
    """

    pid: int
    group: int
    pipe: int
    signal_mask: frozenset[int]
    default_tty_signals: tuple[int, ...]


def block_signals() -> frozenset[int]:
    """Block all signals, so that a fork comes before any is handled; returns the mask before."""
    return frozenset(signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()))


def block_for_sigwait(signal_mask: frozenset[int]) -> frozenset[int]:
    """Block the signals that ompbind handles, SIGCHLD included, for `sigwait`, and return them.

    Blocked signals stay pending, so none gets lost between two calls of `sigwait`. Signals that the caller
    ignored stay ignored; `signal_mask` contains the signals that the caller had blocked.
    """
    handled = _find_handled_signals()
    signal.pthread_sigmask(signal.SIG_SETMASK, signal_mask | handled)
    return handled


def start_signal_pipe(pipe: int, signal_mask: frozenset[int]) -> None:
    """Unblock the signals that ompbind handles; Python writes each as a byte to a non-blocking `pipe`."""
    signal.set_wakeup_fd(pipe, warn_on_full_buffer=False)
    handled = _find_handled_signals()
    for number in handled:
        signal.signal(number, lambda number, frame: None)  # Python has written its number to the pipe
    signal.pthread_sigmask(signal.SIG_SETMASK, signal_mask - handled)


def _find_handled_signals() -> frozenset[int]:
    return frozenset((*find_unignored((*TERMINATION_SIGNALS, *FORWARDED_SIGNALS)), signal.SIGCHLD))


def find_unignored(numbers: Iterable[int]) -> tuple[int, ...]:
    """Return the signals among `numbers` that are not ignored."""
    return tuple(number for number in numbers if signal.getsignal(number) != signal.SIG_IGN)


def read_signals(pipe: int) -> list[int] | None:
    """Return the signals in a pipe, each once, in the order in which they came last; None at its end."""
    data = os.read(pipe, 1 << 16)
    return list(dict.fromkeys(reversed(data)))[::-1] if data else None


def signal_name(number: int) -> str:
    """Return the name of a signal, such as "SIGKILL"; "signal 37" if it has no name."""
    names = {member.value: member.name for member in signal.Signals}
    return names.get(number, f"signal {number}")


def exit_by_signal(number: int) -> None:
    """Kill this process by the default action of a signal."""
    signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (number,))
    os.kill(os.getpid(), number)
