"""Ranks that have failed and start again, with --on-failure restart.

A rank that fails waits until its deadline, and then until no process of its last attempt is left and its
output was forwarded. The other ranks go on. A request to stop, a timeout, and the last failure of another
rank cancel all waits.
"""

from ompbind.cpuset import count
from ompbind.execution.outcome import RankExit
from ompbind.record import Record


class RestartPolicy(Record):
    """When failed ranks start again; times are seconds.

    `limit` is the number of restarts of each rank, None for no limit. A rank waits `first_wait_s` before its
    first restart, then twice as long each time, at most `longest_wait_s`. If an attempt has run for
    `healthy_s`, the next wait is `first_wait_s` again.
    """

    limit: int | None = None
    first_wait_s: float = 1.0
    longest_wait_s: float = 60.0
    healthy_s: float = 600.0


ATTEMPTS_KEPT = 100  # earlier attempts of each rank that are kept for the report, the last ones


class Restarts:
    """Failed ranks of one run that wait for their restart; times are seconds of a monotonic clock.

    `waiting` has the deadline of each of these ranks, None once it is over. `count` is the number of
    restarts so far, `earlier` has the attempts of each rank before its last one.
    """

    def __init__(self) -> None:
        self.waiting: dict[int, float | None] = {}
        self.count = 0
        self._waits: dict[int, float] = {}  # the last wait of each rank
        self.earlier: dict[int, tuple[RankExit, ...]] = {}

    @property
    def next_at(self) -> float | None:
        """The next deadline; None if there is none."""
        return min((at for at in self.waiting.values() if at is not None), default=None)

    def schedule(self, policy: RestartPolicy, rank_exit: RankExit, now: float, *, requested: bool) -> str:
        """Let a failed rank wait for its restart, if it starts again; returns the text that says so.

        `requested`: it failed by a signal of the user.
        """
        if requested:
            return "it does not start again after a signal from you"
        if rank_exit.status in (126, 127):  # a command that cannot be executed or is not found fails again
            return f"it does not start again after exit code {rank_exit.status}"
        if policy.limit is not None and rank_exit.attempt > policy.limit:
            return f"it does not start again after {count(rank_exit.attempt, 'attempt')}"
        rank, wait_s = rank_exit.rank, policy.first_wait_s
        if rank in self._waits and rank_exit.usage.wall_s < policy.healthy_s:
            wait_s = 2 * self._waits[rank]
        self._waits[rank] = wait_s = min(wait_s, policy.longest_wait_s)
        self.waiting[rank] = now + wait_s
        return f"attempt {rank_exit.attempt + 1} starts in {wait_s:g} s"

    def take_due(self, now: float) -> list[int]:
        """Return the ranks whose deadline is over, those included that have not started since."""
        self.waiting = {rank: None if at is None or at <= now else at for rank, at in self.waiting.items()}
        return [rank for rank, at in self.waiting.items() if at is None]

    def note_start(self, last: RankExit) -> None:
        """Note that a rank has started again after the attempt `last`."""
        del self.waiting[last.rank]
        self.earlier[last.rank] = (*self.earlier.get(last.rank, ()), last)[-ATTEMPTS_KEPT:]
        self.count += 1

    def cancel(self) -> list[int]:
        """Start no rank again; returns the ranks that were waiting."""
        cancelled, self.waiting = list(self.waiting), {}
        return cancelled
