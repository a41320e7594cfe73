"""Memory and who is near to it: NUMA nodes of accounts that tell localities, not owners of CPUs."""

from collections.abc import Mapping, Sequence

from ompbind.cpuset import EMPTY, CpuSet
from ompbind.machine.model import Node, check_size, with_nearest
from ompbind.record import Record

Distances = Mapping[tuple[int, int], int]
"""The distance from one node to another, by their numbers."""


class NumaMemory(Record):
    """One memory: the number of its node, and the CPUs that it is local to.

    `is_special` tells that it is not plain memory (high-bandwidth, persistent): others come before it.
    """

    number: int
    locality: CpuSet
    memory_bytes: int | None = None
    is_special: bool = False


def make_nodes(memories: Sequence[NumaMemory], online: CpuSet, distances: Distances) -> tuple[Node, ...]:
    """Make nodes by number, every CPU in the node of its closest memory, plain memory before special.

    Of several that are equally close the first has the CPUs; the others have none and are near to it.
    Raises MachineError for more than any machine has.
    """
    unique = {memory.number: memory for memory in memories}
    check_size(len(online), len(unique))
    claimed, own = EMPTY, dict.fromkeys(unique, EMPTY)
    for memory in sorted(unique.values(), key=lambda one: (one.is_special, len(one.locality), one.number)):
        own[memory.number] = (memory.locality & online) - claimed
        claimed |= own[memory.number]
    nodes = [
        Node(
            number=number,
            cpus=own[number],
            memory_bytes=unique[number].memory_bytes,
            distances=_row(distances, number, sorted(unique)),
        )
        for number in sorted(unique)
    ]
    return with_nearest(nodes, {number: _near(memory, own) for number, memory in unique.items()})


def _row(distances: Distances, number: int, numbers: Sequence[int]) -> tuple[int, ...]:
    """Return the distances of a node to all, in order; none unless all are known."""
    row = [distances.get((number, other)) for other in numbers]
    return tuple(far for far in row if far is not None) if None not in row else ()


def _near(memory: NumaMemory, own: Mapping[int, CpuSet]) -> CpuSet:
    """Return the nodes whose CPUs a memory is local to; none when it is local to all alike."""
    near = CpuSet(number for number, cpus in own.items() if not cpus.isdisjoint(memory.locality))
    everywhere = CpuSet(number for number, cpus in own.items() if cpus)
    return EMPTY if near == everywhere and len(near) > 1 else near
