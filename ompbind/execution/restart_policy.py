"""The rules of --on-failure restart: which failed ranks start again, and after which time. Pure."""

from ompbind.cpuset import count
from ompbind.execution.outcome import RankExit
from ompbind.record import Record

_USELESS = (126, 127)
"""Exit codes of commands that cannot be executed or are not found: they would fail again."""


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


def find_refusal(policy: RestartPolicy, rank_exit: RankExit, *, requested: bool = False) -> str:
    """Return why a rank that has failed by itself does not start again; "" if it does.

    `requested` is whether the user has sent it the signal that it exited by.
    """
    if requested:
        return "it does not start again after a signal from you"
    if rank_exit.status in _USELESS:
        return f"it does not start again after exit code {rank_exit.status}"
    if policy.limit is not None and rank_exit.attempt > policy.limit:
        return f"it does not start again after {count(rank_exit.attempt, 'attempt')}"
    return ""


def find_wait_s(policy: RestartPolicy, ran_s: float, last_wait_s: float | None) -> float:
    """Return the seconds until a rank starts again whose last attempt has run for `ran_s` seconds.

    `last_wait_s` is its wait before that attempt, None if that was the first attempt.
    """
    if last_wait_s is None or ran_s >= policy.healthy_s:
        return min(policy.first_wait_s, policy.longest_wait_s)
    return min(2 * last_wait_s, policy.longest_wait_s)
