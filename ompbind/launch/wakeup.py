"""Signals as bytes in a pipe: handlers only note, the loop decides."""

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from ompbind.record import Record

IGNORED = (signal.SIGTTIN, signal.SIGTTOU)
"""Signals that must not stop the one who has to see all others through."""

Disposition = Callable[..., object] | int | None


class Wakeup(Record):
    """The reading end of the wake-up pipe, and what signals meant before they were noted.

    `before` are the dispositions of all signals that were changed, `mask` is the signal mask.
    """

    pipe: int
    before: dict[int, Disposition]
    mask: frozenset[int]

    def read(self) -> list[int]:
        """Return the signals noted since the last call, each once, in the order of their last coming."""
        return list(dict.fromkeys(reversed(os.read(self.pipe, 1 << 16))))[::-1]


@contextmanager
def noted_signals(wanted: Iterable[int], always: int) -> Iterator[Wakeup]:
    """Note signals in a pipe for a while; those that the caller had ignored stay so, but for `always`.

    All signals are blocked on entry, so that processes can be forked before any is handled;
    `unblock` lets them in.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    heard = [number for number in wanted if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.getsignal(number) for number in (*heard, always, *IGNORED)}
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    try:
        for number in before:
            signal.signal(number, signal.SIG_IGN if number in IGNORED else _note)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        yield Wakeup(pipe=read_end, before=before, mask=frozenset(mask))
    finally:
        signal.set_wakeup_fd(-1)
        for number, disposition in before.items():
            signal.signal(number, disposition)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(read_end)
        os.close(write_end)


def unblock(wakeup: Wakeup) -> None:
    """Let signals in; those that are noted even if the caller had them blocked."""
    signal.pthread_sigmask(signal.SIG_SETMASK, wakeup.mask - set(wakeup.before))


def restore(wakeup: Wakeup) -> None:
    """Give a child the signals that ompbind was started with, Python's own handlers left out."""
    for number, disposition in wakeup.before.items():
        ignored = disposition is signal.SIG_IGN
        signal.signal(number, signal.SIG_IGN if ignored else signal.SIG_DFL)


def _note(number: int, frame: object) -> None:
    """Do nothing: the pipe has noted the signal."""
