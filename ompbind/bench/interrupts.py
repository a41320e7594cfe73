"""Signals that stop a session: each raises KeyboardInterrupt, so that the runs so far can be shown."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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
def delay_interrupts() -> Iterator[None]:
    """Deliver signals that stop a session only at the end of the block, so that it is done or not begun."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
