"""NUMA nodes from sources that report the locality of memory instead of the CPUs of each node.

In hwloc several memories may be local to the same CPUs: HBM and DRAM of one package, for example. But a CPU
belongs to one node, so each CPU goes to the plain memory with the smallest locality around it. The other
memories become nodes without CPUs, and the nodes of their local CPUs are their nearest.
"""

from collections.abc import Iterable, Mapping, Sequence

from ompbind.cpuset import EMPTY, CpuSet
from ompbind.machine.model import Node, check_size
from ompbind.record import Record

Distances = Mapping[tuple[int, int], int]
"""Distances by (from node, to node)."""


class NumaMemory(Record):
    """One memory: the number of its node, and the CPUs that it is local to.

    `is_special`: it is not DRAM (high-bandwidth, persistent); CPUs then belong to other memory first.
    """

    number: int
    locality: CpuSet
    memory_bytes: int | None = None
    is_special: bool = False


def make_nodes(memories: Sequence[NumaMemory], online: CpuSet, distances: Distances) -> tuple[Node, ...]:
    """Make nodes by number, each CPU in the node of its closest memory, plain memory before special memory.

    Of equally close memories the first has the CPUs; the others have none, and the first is their nearest.
    Raises MachineError for too many CPUs or nodes.
    """
    unique = {memory.number: memory for memory in memories}
    check_size(len(online), len(unique))
    assigned, cpus = EMPTY, dict.fromkeys(unique, EMPTY)
    for memory in sorted(
        unique.values(), key=lambda each: (each.is_special, len(each.locality), each.number)
    ):
        cpus[memory.number] = (memory.locality & online) - assigned
        assigned |= cpus[memory.number]
    nodes = []
    for number in sorted(unique):
        known = [distances[number, other] for other in sorted(unique) if (number, other) in distances]
        row = tuple(known) if len(known) == len(unique) else ()
        size = unique[number].memory_bytes
        nodes.append(Node(number=number, cpus=cpus[number], memory_bytes=size, distances=row))
    local = {number: _find_local_nodes(memory, cpus) for number, memory in unique.items()}
    return add_nearest_nodes(nodes, local)


def _find_local_nodes(memory: NumaMemory, cpus_by_node: Mapping[int, CpuSet]) -> CpuSet:
    """Return the nodes with CPUs that a memory is local to; none if it is local to all of them."""
    local = CpuSet(number for number, cpus in cpus_by_node.items() if not cpus.isdisjoint(memory.locality))
    with_cpus = CpuSet(number for number, cpus in cpus_by_node.items() if cpus)
    return EMPTY if local == with_cpus and len(local) > 1 else local


def add_nearest_nodes(nodes: Sequence[Node], initiators: Mapping[int, CpuSet]) -> tuple[Node, ...]:
    """Set `nearest` of nodes without CPUs or without memory.

    `initiators` are the closest nodes that the firmware reports (ACPI HMAT), by the number of a node; without
    them, distances decide.
    """
    found = []
    for node in nodes:
        nearest: tuple[int, ...] = ()
        if not node.is_complete:
            candidates = [
                other.number for other in nodes if (other.memory_bytes if node.cpus else other.cpus)
            ]
            reported = initiators.get(node.number, EMPTY)
            nearest = tuple(number for number in candidates if number in reported)
            nearest = nearest or tuple(find_closest(node, nodes, candidates))
        found.append(node.replace(nearest=nearest))
    return tuple(found)


def find_closest(node: Node, nodes: Sequence[Node], candidates: Iterable[int]) -> dict[int, int]:
    """Map the candidates with the smallest distance from a node to this distance; empty if none is known."""
    distances = dict(zip((other.number for other in nodes), node.distances, strict=False))
    known = {number: distances[number] for number in candidates if number in distances}
    smallest = min(known.values(), default=None)
    return {number: distance for number, distance in known.items() if distance == smallest}
