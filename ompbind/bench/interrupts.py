"""Signals that stop a session: each raises KeyboardInterrupt, so that the runs so far can be shown.

The end of --budget is such a signal too, SIGALRM: it also stops a run that would never exit.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_ALL = (*INTERRUPTS, signal.SIGALRM)


class TimeIsUp(KeyboardInterrupt):
    """The session has used all its time."""


@contextmanager
def catch_interrupts() -> Iterator[list[int]]:
    """Let signals that stop a session raise KeyboardInterrupt; yield the list of signals that arrive.

    Signals that this process ignores stay ignored, as after nohup. A write to a closed pipe raises
    BrokenPipeError and does not kill the session. Afterwards all signals do what they did before. A forked
    child that has no handlers of its own yet exits: it must not save and show the session too.
    """
    arrived: list[int] = []
    owner = os.getpid()

    def interrupt(number: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:
            os._exit(128 + number)
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


@contextmanager
def delay_interrupts() -> Iterator[None]:
    """Deliver signals that stop a session only at the end of the block, so that it is done or not begun."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ALL)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
