"""The ranks of a run as child processes: waiting to be started, running (`live`), exited."""

import os
from collections.abc import Sequence

from ompbind.execution.outcome import RankExit
from ompbind.execution.poller import READABLE, Poller
from ompbind.execution.processes import signal_rank
from ompbind.execution.rlimits import FileLimit


class Child:
    """A running rank: its number, which attempt this is (from 1), and its start time.

    `pidfd` is -1 if only SIGCHLD reports its exit. `signals` are the signals that were sent to it.
    """

    def __init__(self, rank: int, attempt: int, started_at: float) -> None:
        self.rank = rank
        self.attempt = attempt
        self.started_at = started_at
        self.pidfd = -1
        self.signals: set[int] = set()


class Children:
    """All ranks of one run.

    `waiting` are ranks to be started, the next one last. `live` are running ranks by pid, which is also the
    number of their process group. `by_pidfd` has their pids by pidfd. `exits` are the last exits of ranks
    that do not run, in the order in which they came. `is_single` is true for a run of one rank, which can
    have the terminal.
    """

    def __init__(self, ranks: int, poller: Poller, limit: FileLimit) -> None:
        self.is_single = ranks == 1
        self.waiting: list[int] = []
        self.live: dict[int, Child] = {}
        self.exits: list[RankExit] = []
        self.by_pidfd: dict[int, int] = {}
        self._poller = poller
        self._limit = limit

    @property
    def ranks(self) -> dict[int, int]:
        """The numbers of the running ranks, by pid."""
        return {pid: child.rank for pid, child in self.live.items()}

    @property
    def owners(self) -> dict[int, tuple[int, int]]:
        """The number and the attempt of each running rank, by pid."""
        return {pid: (child.rank, child.attempt) for pid, child in self.live.items()}

    @property
    def has_unfinished(self) -> bool:
        """Return whether ranks run or wait for their first start."""
        return bool(self.live or self.waiting)

    @property
    def has_failed_rank(self) -> bool:
        """Return whether a rank has failed that ompbind did not stop."""
        return any(rank_exit.failed for rank_exit in self.exits)

    def wait_for_start(self, ranks: Sequence[int]) -> None:
        """Let ranks wait for their first start, in this order."""
        self.waiting = [*reversed(ranks), *self.waiting]

    def take_next(self) -> int:
        """Remove the next rank to be started from `waiting`, and return it."""
        return self.waiting.pop()

    def cancel_waiting(self) -> list[int]:
        """Start no more ranks; returns the ranks that were waiting."""
        cancelled, self.waiting = self.waiting, []
        return cancelled

    def add(self, pid: int, child: Child) -> None:
        """Note that a rank runs, and poll for its exit; its earlier exit no longer counts."""
        self.live[pid] = child
        if child.attempt > 1:
            self.exits.remove(self.find_exit(child.rank))
        try:
            pidfd = os.pidfd_open(pid)
        except (OSError, AttributeError):
            return  # SIGCHLD reports its exit too, but not which of several ranks exited first
        if self._limit.is_near_limit(pidfd):
            os.close(pidfd)
            return
        self._poller.register(pidfd, READABLE)
        self.by_pidfd[pidfd] = pid
        child.pidfd = pidfd

    def close_pidfd(self, pid: int) -> None:
        """Rely on SIGCHLD alone for the exit of a rank."""
        child = self.live[pid]
        if child.pidfd >= 0:
            del self.by_pidfd[child.pidfd]
            # Closing alone is not enough: a rank that is just being spawned may have a copy.
            self._poller.unregister(child.pidfd)
            os.close(child.pidfd)
            child.pidfd = -1

    def note_exit(self, rank_exit: RankExit) -> Child:
        """Note that a rank has exited; returns what was known of it."""
        self.close_pidfd(rank_exit.pid)
        self.exits.append(rank_exit)
        return self.live.pop(rank_exit.pid)

    def find_exit(self, rank: int) -> RankExit:
        """Return the last exit of a rank that does not run."""
        return next(rank_exit for rank_exit in self.exits if rank_exit.rank == rank)

    def signal(self, number: int) -> None:
        """Signal every running rank, and its process group."""
        for pid, child in self.live.items():
            child.signals.add(number)
            signal_rank(pid, number)
