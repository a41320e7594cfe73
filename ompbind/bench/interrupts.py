"""Signals that stop a session: each raises KeyboardInterrupt, so that the runs so far can be shown.

The end of --budget is such a signal too, SIGALRM: it also stops a run that would never exit.
"""

import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

from ompbind.execution.shutdown import REPEAT_S

INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_ALL = (*INTERRUPTS, signal.SIGALRM)


class TimeIsUp(KeyboardInterrupt):
    """The session has used all its time."""


@contextmanager
def catch_interrupts() -> Iterator[list[int]]:
    """Let signals that stop a session raise KeyboardInterrupt; yield the list of signals that arrive.

    As in `run`, a signal that repeats another within REPEAT_S seconds has no effect. Signals that this
    process ignores stay ignored, as after nohup. A write to a closed pipe raises BrokenPipeError and does not
    kill the session. Afterwards all signals that are not ignored by then do what they did before. A forked
    child that has no handlers of its own yet exits: it must not save and show the session too.
    """
    arrived: list[int] = []
    owner, ignored_until = os.getpid(), 0.0

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal ignored_until
        if os.getpid() != owner:
            os._exit(128 + number)
        now = time.monotonic()
        if now < ignored_until:
            return
        ignored_until = now + REPEAT_S
        arrived.append(number)
        raise KeyboardInterrupt

    def stay_alive(number: int, frame: FrameType | None) -> None:
        """Do nothing: unlike an ignored signal, a handled signal is not inherited by ranks."""

    before = {number: signal.getsignal(number) for number in (*INTERRUPTS, signal.SIGPIPE)}
    try:
        for number, handler in before.items():
            if handler != signal.SIG_IGN:
                signal.signal(number, stay_alive if number is signal.SIGPIPE else interrupt)
        yield arrived
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, handler)


@contextmanager
def limit_time(limit_s: float | None) -> Iterator[None]:
    """Raise TimeIsUp in the block after `limit_s` seconds; None: never. Only for the main thread."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeIsUp

    if limit_s is None:
        yield
        return
    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, limit_s)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def ignore_interrupts() -> None:
    """Ignore signals that stop a session: it was stopped, and the exit code is decided."""
    for number in INTERRUPTS:
        signal.signal(number, signal.SIG_IGN)


def delay_interrupts() -> "SignalMask":
    """Deliver signals that stop a session only at the end of the block, so that it is done or not begun.

    The block gets the signal mask before.
    """
    return SignalMask(signal.SIG_BLOCK, _ALL)


class SignalMask:
    """Changes the signal mask for a block, as `signal.pthread_sigmask` does; the block gets the mask before.

    A signal at any moment leaves the mask of an outer block as it was. A generator would not: one that a
    signal stops before its end restores its mask when it is deleted, after the outer block.
    """

    def __init__(self, how: int, numbers: Iterable[int]) -> None:
        self._how = how
        self._numbers = numbers
        self._before = frozenset[int]()

    def __enter__(self) -> frozenset[int]:
        self._before = frozenset(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
        try:
            signal.pthread_sigmask(self._how, self._numbers)
        except KeyboardInterrupt:  # a signal that has come before; the mask has changed nevertheless
            signal.pthread_sigmask(signal.SIG_SETMASK, self._before)
            raise
        return self._before

    def __exit__(self, *_: object) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)
