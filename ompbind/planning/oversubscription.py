"""More ranks than cores: ranks share as few cores as possible, each with hardware threads of its own.

Every core gets one rank before any core gets two, and no rank has CPUs of two cores.
"""

from __future__ import annotations

from ompbind.cpuset import CpuSet

TYPE_CHECKING = False  # importing typing takes time: see record.py
if TYPE_CHECKING:
    from collections.abc import Sequence


def count_ranks_per_core(capacities: Sequence[int], ranks: int) -> list[int]:
    """Return how many ranks each core gets: one more per round for every core with a free hardware thread.

    `capacities` are the hardware threads of each core; their sum must be at least `ranks`. If the last round
    has fewer ranks than cores, its ranks are spread evenly over the cores.
    """
    counts = [0] * len(capacities)
    while (left := ranks - sum(counts)) > 0:
        not_full = [core for core, capacity in enumerate(capacities) if counts[core] < capacity]
        if left < len(not_full):
            not_full = [not_full[i * len(not_full) // left] for i in range(left)]
        for core in not_full:
            counts[core] += 1
    return counts


def split_core(cpus: CpuSet, ranks: int) -> list[CpuSet]:
    """Split the CPUs of one core evenly among ranks, in order."""
    numbers = tuple(cpus)
    bounds = [i * len(numbers) // ranks for i in range(ranks + 1)]
    return [CpuSet(numbers[bounds[i] : bounds[i + 1]]) for i in range(ranks)]
