"""How many threads each rank gets: one per CPU, but no more in all than CPUs in the quota of the cgroup.

Threads beyond the quota make no program faster: the kernel stops the threads of all ranks together until the
next period begins. So the quota is divided in proportion to the CPUs of the ranks, and each share is rounded
down. Equal ranks have equal numbers of threads: ranks of one job wait for the slowest. A rank whose share is
less than one CPU has one thread; the other ranks divide the rest of the quota.
"""

from collections.abc import Sequence


def make_thread_counts(cpus: Sequence[int], quota: float) -> list[int]:
    """Return the number of threads of each rank, for ranks with these numbers of CPUs (1 or more).

    `quota` is the CPU time that the ranks have together, in CPUs. The sum is at most the quota, or one thread
    per rank: three ranks with 4 CPUs each and a quota of 8.5 have 2 each.
    """
    rest, left = quota, sum(cpus)  # what ranks with a share of one CPU or more divide, and their CPUs
    for number in sorted(cpus):
        if rest * number >= left:
            break
        rest, left = max(0.0, rest - 1), left - number
    return [max(1, min(number, int(rest * number / left))) if left else 1 for number in cpus]
