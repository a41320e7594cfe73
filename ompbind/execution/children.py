"""The ranks of a run as child processes: waiting to be started, running (`live`), exited."""

import os
from collections.abc import Sequence

from ompbind.execution.outcome import RankExit
from ompbind.execution.poller import READABLE
from ompbind.execution.processes import signal_rank
from ompbind.execution.rlimits import FileLimit

TYPE_CHECKING = False  # importing typing takes time: see record.py
if TYPE_CHECKING:
    from ompbind.execution.poller import Poller


class Child:
    """A running rank: its number, its start time, and its pidfd; -1 if only SIGCHLD reports its exit."""

    def __init__(self, rank: int, started_at: float, pidfd: int) -> None:
        self.rank = rank
        self.started_at = started_at
        self.pidfd = pidfd


class Children:
    """All ranks of one run.

    `waiting` are ranks to be started, the next one last. `live` are running ranks by pid, which is also the
    number of their process group. `exits` are in the order in which ranks exited. `is_single` is true for
    a run of one rank, which can have the terminal.
    """

    def __init__(self, ranks: Sequence[int], poller: "Poller", limit: FileLimit) -> None:
        self.is_single = len(ranks) == 1
        self.waiting = list(reversed(ranks))
        self.live: dict[int, Child] = {}
        self.exits: list[RankExit] = []
        self._by_pidfd: dict[int, int] = {}
        self._poller = poller
        self._limit = limit

    @property
    def ranks(self) -> dict[int, int]:
        """The numbers of the running ranks, by pid."""
        return {pid: child.rank for pid, child in self.live.items()}

    @property
    def has_unfinished(self) -> bool:
        """Return whether ranks run or wait to be started."""
        return bool(self.live or self.waiting)

    @property
    def has_failed_rank(self) -> bool:
        """Return whether a rank has failed that ompbind did not stop."""
        return any(rank_exit.failed for rank_exit in self.exits)

    def take_next(self) -> int:
        """Remove the next rank to be started from `waiting`, and return it."""
        return self.waiting.pop()

    def cancel_waiting(self) -> list[int]:
        """Start no more ranks; returns the ranks that were waiting."""
        cancelled, self.waiting = self.waiting, []
        return cancelled

    def add(self, pid: int, rank: int, started_at: float) -> None:
        """Note that a rank runs, and poll for its exit."""
        self.live[pid] = Child(rank, started_at, self._open_pidfd(pid))

    def find_by_pidfd(self, pidfd: int) -> int | None:
        """Return the pid of the rank that a pidfd refers to; None for other files."""
        return self._by_pidfd.get(pidfd)

    def close_pidfd(self, pid: int) -> None:
        """Rely on SIGCHLD alone for the exit of a rank."""
        child = self.live[pid]
        if child.pidfd >= 0:
            del self._by_pidfd[child.pidfd]
            # Closing alone is not enough: a rank that is just being spawned may have a copy.
            self._poller.unregister(child.pidfd)
            os.close(child.pidfd)
            child.pidfd = -1

    def note_exit(self, rank_exit: RankExit) -> None:
        """Note that a rank has exited."""
        self.close_pidfd(rank_exit.pid)
        del self.live[rank_exit.pid]
        self.exits.append(rank_exit)

    def signal(self, number: int) -> None:
        """Signal every running rank, and its process group."""
        for pid in self.live:
            signal_rank(pid, number)

    def _open_pidfd(self, pid: int) -> int:
        try:
            file = os.pidfd_open(pid)
        except (OSError, AttributeError):
            return -1  # SIGCHLD reports its exit too, but not which of several ranks exited first
        if self._limit.is_near_limit(file):
            os.close(file)
            return -1
        self._poller.register(file, READABLE)
        self._by_pidfd[file] = pid
        return file
