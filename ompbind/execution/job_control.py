"""Job control for a single rank: it gets the terminal as the shell would give it.

Where it reads the terminal and does not write to a pipe it has it from the start. Otherwise it starts in the
background. When it reads the terminal or sets it up, the kernel stops it with SIGTTIN or SIGTTOU; that is
how it asks. So a rank that never asks leaves the terminal to what else runs in the foreground, such as the
pager at the other end of its pipe. A *job* is what the shell has started: the process group of the front,
and what else is in it.
"""

import os
import signal

from ompbind.procfs.reader import read_processes

ASKING = (signal.SIGTTIN, signal.SIGTTOU)
"""The signals by which the kernel stops a process that wants the terminal from the background."""


class Terminal:
    """The terminal that controls a job, if any; all questions are answered with no without one."""

    def __init__(self, job: int) -> None:
        self.job = job
        try:
            self._file = os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            self._file = -1

    def is_ours(self) -> bool:
        """Tell whether the job is the foreground of the terminal."""
        return self._foreground() == self.job

    def give(self, group: int) -> None:
        """Make a process group the foreground; SIGTTOU must be ignored."""
        try:
            os.tcsetpgrp(self._file, group)
        except OSError:
            pass  # the terminal is gone, or the group has ended: there is nothing to give

    def take_back(self, group: int) -> bool:
        """Make the job the foreground again if `group` is; tells whether it was."""
        if self._foreground() != group:
            return False
        self.give(self.job)
        return True

    def can_be_stopped(self) -> bool:
        """Tell whether somebody is there to continue the job once it is stopped.

        That is a parent of one of its processes, outside of the job but in its session, such as a shell.
        The kernel calls a group *orphaned* that has none, and does not stop it for the terminal's sake.
        """
        processes = read_processes()
        if not processes:  # this system does not tell
            return self.job != os.getsid(0)
        parents = (processes.get(one.parent) for one in processes.values() if one.group == self.job)
        here = os.getsid(0)
        return any(parent.group != self.job and parent.session == here for parent in parents if parent)

    def _foreground(self) -> int | None:
        try:
            return os.tcgetpgrp(self._file) if self._file >= 0 else None
        except OSError:
            return None


def die_of_interrupt() -> None:
    """End this process as SIGINT does, when it has the terminal: a script there then stops as well.

    A shell that waits takes an exit code, even 130, as a sign that the interrupt was dealt with.
    """
    if Terminal(os.getpgrp()).is_ours():
        kill_oneself(signal.SIGINT)


def kill_oneself(number: signal.Signals) -> None:
    """End this process by a signal, as if nobody had handled it."""
    signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (number,))
    os.kill(os.getpid(), number)
