"""The ranks of a run as child processes: those to be started, those that run and those that have ended."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ompbind.execution.outcome import Exited
from ompbind.execution.poller import READABLE
from ompbind.execution.processes import signal_rank
from ompbind.execution.rlimits import FileLimit

if TYPE_CHECKING:
    from ompbind.execution.poller import Poller


class Child:
    """A rank that runs: its number, when it began, and what tells of its end; -1 where that is SIGCHLD."""

    def __init__(self, rank: int, began_at: float, pidfd: int) -> None:
        self.rank = rank
        self.began_at = began_at
        self.pidfd = pidfd


class Children:
    """All ranks of one run; `live` are those that run, by pid, which is their process group.

    `is_single` tells that there is one rank only, which may then have the terminal.
    """

    def __init__(self, ranks: Sequence[int], poller: "Poller", limit: FileLimit) -> None:
        self.is_single = len(ranks) == 1
        self.waiting = list(reversed(ranks))  # the last one first
        self.live: dict[int, Child] = {}
        self.exits: list[Exited] = []
        self._by_pidfd: dict[int, int] = {}
        self._poller = poller
        self._limit = limit

    @property
    def ranks(self) -> dict[int, int]:
        """The numbers of the ranks that run, by pid."""
        return {pid: child.rank for pid, child in self.live.items()}

    @property
    def are_left(self) -> bool:
        """Tell whether ranks run or wait to be started."""
        return bool(self.live or self.waiting)

    @property
    def have_failed(self) -> bool:
        """Tell whether a rank has failed by itself."""
        return any(exited.failed for exited in self.exits)

    def take_next(self) -> int:
        """Return the next rank to be started."""
        return self.waiting.pop()

    def leave_out(self) -> list[int]:
        """Start no more ranks; returns those that are left out."""
        left_out, self.waiting = self.waiting, []
        return left_out

    def add(self, pid: int, rank: int, began_at: float) -> None:
        """Note that a rank runs, and wait for its end."""
        self.live[pid] = Child(rank, began_at, self._open_pidfd(pid))

    def find(self, pidfd: int) -> int | None:
        """Return the pid of the rank whose end a file tells; None for other files."""
        return self._by_pidfd.get(pidfd)

    def close_pidfd(self, pid: int) -> None:
        """Wait for the end of a rank by SIGCHLD alone."""
        child = self.live[pid]
        if child.pidfd >= 0:
            del self._by_pidfd[child.pidfd]
            self._poller.unregister(child.pidfd)  # a child that is just being born may still have a copy
            os.close(child.pidfd)
            child.pidfd = -1

    def note_end(self, exited: Exited) -> None:
        """Note that a rank has ended."""
        self.close_pidfd(exited.pid)
        del self.live[exited.pid]
        self.exits.append(exited)

    def signal(self, number: int) -> None:
        """Signal every rank that runs, and its group."""
        for pid in self.live:
            signal_rank(pid, number)

    def _open_pidfd(self, pid: int) -> int:
        try:
            file = os.pidfd_open(pid)
        except (OSError, AttributeError):
            return -1  # SIGCHLD tells of its end as well, only not who was first
        if self._limit.is_scarce(file):
            os.close(file)
            return -1
        self._poller.register(file, READABLE)
        self._by_pidfd[file] = pid
        return file
