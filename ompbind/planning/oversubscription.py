"""More ranks than cores: ranks that share cores, by hardware threads only, and as few as must.

Every core has one rank before any has two, and no rank has CPUs of two cores.
"""

from collections.abc import Sequence

from ompbind.cpuset import CpuSet


def fill(rooms: Sequence[int], ranks: int) -> list[int]:
    """Return how many ranks each core hosts: one more for each in turn, as long as it has room.

    The last round does not reach all: its ranks go to cores evenly along the line. The rooms must add
    up to at least `ranks`.
    """
    counts = [0] * len(rooms)
    while (left := ranks - sum(counts)) > 0:
        roomy = [core for core, room in enumerate(rooms) if counts[core] < room]
        chosen = roomy if left >= len(roomy) else [roomy[i * len(roomy) // left] for i in range(left)]
        for core in chosen:
            counts[core] += 1
    return counts


def split_core(cpus: CpuSet, ranks: int) -> list[CpuSet]:
    """Divide the CPUs of one core among ranks, evenly, and in order."""
    numbers = tuple(cpus)
    marks = [i * len(numbers) // ranks for i in range(ranks + 1)]
    return [CpuSet(numbers[marks[i] : marks[i + 1]]) for i in range(ranks)]
