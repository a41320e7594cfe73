"""How many threads each rank gets: one per CPU, but no more in all than CPUs in the quota of the cgroup.

Threads beyond the quota make no program faster: the kernel stops the threads of all ranks together until the
next period begins. So the quota, rounded down, is divided among the ranks, in proportion to their CPUs. Each
rank has one thread at least.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing takes time: see record.py
if TYPE_CHECKING:
    from collections.abc import Sequence


def make_thread_counts(cpus: Sequence[int], quota: float) -> list[int]:
    """Return the number of threads of each rank, for ranks with these numbers of CPUs (1 or more).

    `quota` is the CPU time that the ranks have together, in CPUs. The sum is at most the quota, or one thread
    per rank. Of ranks with equal CPUs, the first have one thread more if the quota
    cannot be divided: three ranks with 4 CPUs and a quota of 8.5 have 3, 3 and 2.
    """
    if quota >= sum(cpus):
        return list(cpus)
    more = [number - 1 for number in cpus]  # beyond the first thread of each rank
    left = max(0, int(quota) - len(cpus))
    shares = [divmod(left * number, sum(more) or 1) for number in more]
    counts = [1 + share for share, _ in shares]
    left -= sum(share for share, _ in shares)
    for rank in sorted(range(len(cpus)), key=lambda rank: -shares[rank][1])[:left]:
        counts[rank] += 1
    return counts
