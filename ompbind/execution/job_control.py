"""Job control for a single rank: it gets the terminal as a shell would give it.

A *job* is what the shell has started: the process group of the foreground process of ompbind, and the
processes in it. A rank has a process group of its own, so it must be given the terminal:

- A rank that reads the terminal and does not write to a pipe has it from the start. So has a rank that could
  not request it later, as within `$(...)` of an interactive shell.
- Any other rank starts in the background. When it reads the terminal or changes its settings, the kernel
  stops it with SIGTTIN or SIGTTOU. That is its *request*: the supervisor gives it the terminal and SIGCONT.

So a rank that never uses the terminal leaves it to the rest of the job, such as a pager at the end of a pipe.
Several ranks cannot share the terminal: their standard input is empty.
"""

import os
import signal
from contextlib import suppress

from ompbind.execution.orphans import signal_parent, signal_rank
from ompbind.execution.signals import TTY_SIGNALS, Foreground, exit_by_signal
from ompbind.procfs.reader import read_caught_signals, read_processes

_STOP_SIGNALS = (signal.SIGSTOP, signal.SIGTSTP)
"""Signals with which programs that catch `TTY_SIGNALS` stop themselves after restoring the screen."""


class Terminal:
    """The controlling terminal of a job, if there is one; without a terminal every query returns False."""

    def __init__(self, job: int) -> None:
        self.job = job
        try:
            self._file = os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            self._file = -1

    def is_ours(self) -> bool:
        """Return whether the job is the foreground process group of the terminal."""
        return self._foreground() == self.job

    def is_given_at_start(self, foreground: Foreground, *, writes_there: bool) -> bool:
        """Return whether the only rank gets the terminal from its start; `writes_there`: to no pipe."""
        unblocked = {*foreground.default_tty_signals} - foreground.signal_mask
        can_request_it = unblocked == {*TTY_SIGNALS}  # the kernel stops a background rank that uses it
        return self.is_ours() and (not can_request_it or (os.isatty(0) and writes_there))

    def give(self, group: int) -> None:
        """Make a process group the foreground group of the terminal; the caller must ignore SIGTTOU."""
        with suppress(OSError):  # the terminal was closed, or the group is empty
            os.tcsetpgrp(self._file, group)

    def take_back(self, group: int) -> bool:
        """Make the job the foreground again if `group` is; returns whether it was."""
        if self._foreground() != group:
            return False
        self.give(self.job)
        return True

    def can_be_stopped(self) -> bool:
        """Return whether a process exists that can continue the job once it is stopped.

        That is a parent of one of its processes, outside the job but in the same session, such as a shell.
        The kernel calls a group without such a parent *orphaned*, and does not stop it with `TTY_SIGNALS`.
        """
        processes, session = read_processes(), os.getsid(0)
        if not processes:  # /proc is not available
            return self.job != session
        parents = (processes.get(each.parent) for each in processes.values() if each.group == self.job)
        return any(parent.group != self.job and parent.session == session for parent in parents if parent)

    def handle_stop(self, rank: int, number: int, foreground: int) -> None:
        """Handle that a signal has stopped the only rank: give it the terminal, or stop the whole job.

        - the rank requests the terminal, and the job has it: give it the terminal and continue the rank
        - the rank requests it while the job is in the background, or Ctrl-Z has stopped it in the foreground:
          stop the job too, so that the shell notices; if no shell can continue the job, continue the rank
        - the rank requests it and no shell can continue it: SIGHUP, as the kernel does with orphaned groups

        `foreground` is the PID of the foreground process.
        """
        caught = read_caught_signals(rank) if number in _STOP_SIGNALS else set()
        requests = number in TTY_SIGNALS or bool(caught & set(TTY_SIGNALS))
        if requests and self.is_ours():
            self.give(rank)
            signal_rank(rank, signal.SIGCONT)
        elif (requests and self.can_be_stopped()) or self.take_back(rank):
            if not self.can_be_stopped():
                signal_rank(rank, signal.SIGCONT)
            # The SIGCONT that continues the job is forwarded. Each process gets one signal: a second one
            # could stop a job again that the shell has just continued.
            elif requests:  # programs that must go on, such as `timeout`, ignore SIGTTIN, and so does ompbind
                signal_parent(foreground, signal.SIGTTIN, group=self.job)
                signal_parent(foreground, signal.SIGSTOP)
            else:
                signal_parent(foreground, signal.SIGSTOP, group=self.job)
        elif requests:
            signal_rank(rank, signal.SIGHUP)
            signal_rank(rank, signal.SIGCONT)

    def _foreground(self) -> int | None:
        with suppress(OSError):
            return os.tcgetpgrp(self._file)
        return None


def exit_by_interrupt() -> None:
    """Kill this process by SIGINT if its job has the terminal, so that a shell script there stops too.

    A shell takes any exit code, even 130, to mean that the program has handled the interrupt.
    """
    if Terminal(os.getpgrp()).is_ours():
        exit_by_signal(signal.SIGINT)
