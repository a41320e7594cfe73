"""Job control for a single rank: it has the terminal as if the shell had started it directly."""

import os
import signal


def has_terminal() -> bool:
    """Tell whether standard input is a terminal of which this process group is the foreground."""
    return _foreground() == os.getpgrp()


def give_terminal(group: int) -> None:
    """Make a process group the foreground of the terminal on standard input."""
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    try:
        os.tcsetpgrp(0, group)
    except OSError:
        pass  # the terminal is gone, or the group has ended: there is nothing to give
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def take_terminal_back(group: int) -> None:
    """Become the foreground again, if the group that was given the terminal still has it."""
    if _foreground() == group:
        give_terminal(os.getpgrp())


def stop_like(group: int) -> None:
    """Stop this process because its rank was stopped: the shell sees it as it would see the rank."""
    take_terminal_back(group)
    os.kill(os.getpid(), signal.SIGSTOP)


def _foreground() -> int | None:
    try:
        return os.tcgetpgrp(0)
    except OSError:
        return None
