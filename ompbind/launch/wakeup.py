"""Signals as bytes in a pipe: handlers only note, the loop decides."""

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from ompbind.record import Record


class Wakeup(Record):
    """The reading end of the wake-up pipe, the signals that are noted, and the mask before they were."""

    pipe: int
    caught: tuple[signal.Signals, ...]
    mask: frozenset[int]

    def read(self) -> list[signal.Signals]:
        """Return the signals noted since the last call, each once, in no particular order."""
        return [signal.Signals(number) for number in set(os.read(self.pipe, 1 << 16))]


@contextmanager
def noted_signals(wanted: Iterable[signal.Signals]) -> Iterator[Wakeup]:
    """Note signals in a pipe for a while; those that the caller had ignored stay ignored.

    All signals are blocked on entry, so that processes can be forked before any is handled;
    `unblock` lets them in.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    caught = tuple(number for number in wanted if signal.getsignal(number) is not signal.SIG_IGN)
    before = {number: signal.getsignal(number) for number in caught}
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    try:
        for number in caught:
            signal.signal(number, _note)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        yield Wakeup(pipe=read_end, caught=caught, mask=frozenset(mask))
    finally:
        signal.set_wakeup_fd(-1)
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(read_end)
        os.close(write_end)


def unblock(wakeup: Wakeup) -> None:
    """Let signals in again."""
    signal.pthread_sigmask(signal.SIG_SETMASK, wakeup.mask)


def _note(number: int, frame: object) -> None:
    """Do nothing: the pipe has noted the signal."""
