"""NUMA nodes from sources that report the locality of memory instead of the CPUs of each node.

In hwloc several memories may be local to the same CPUs: HBM and DRAM of one package, for example. But a CPU
belongs to one node, so each CPU goes to the plain memory with the smallest locality around it. The other
memories become nodes without CPUs, and the nodes of their local CPUs are their nearest.
"""

from collections.abc import Iterable, Mapping, Sequence

from ompbind.cpuset import EMPTY, CpuSet
from ompbind.machine.model import Node, check_size
from ompbind.record import Record

Distances = Mapping[tuple[int, int], int]  # distances by (from node, to node)


class NumaMemory(Record):
    """The memory of a node. CPUs belong last to memory that `is_special`: high-bandwidth or persistent."""

    number: int
    locality: CpuSet
    memory_bytes: int | None = None
    is_special: bool = False


def make_nodes(memories: Sequence[NumaMemory], online: CpuSet, distances: Distances) -> tuple[Node, ...]:
    """Make nodes by number, each CPU in the node of its closest memory, plain memory before special memory.

    Of equally close memories the first has the CPUs; the others have none, and the first is their nearest.
    Raises MachineError for too many CPUs or nodes.
    """
    unique = {memory.number: memory for memory in sorted(memories, key=lambda memory: memory.number)}
    check_size(len(online), len(unique))
    assigned, cpus = EMPTY, dict.fromkeys(unique, EMPTY)
    closest_first = sorted(
        unique.values(), key=lambda memory: (memory.is_special, len(memory.locality), memory.number)
    )
    for memory in closest_first:
        cpus[memory.number] = (memory.locality & online) - assigned
        assigned |= cpus[memory.number]
    with_cpus = CpuSet(number for number in unique if cpus[number])
    nodes, initiators = [], {}
    for number, memory in unique.items():
        row = tuple(distances[number, other] for other in unique if (number, other) in distances)
        row = row if len(row) == len(unique) else ()
        size = memory.memory_bytes
        nodes.append(Node(number=number, cpus=cpus[number], memory_bytes=size, distances=row))
        local = CpuSet(other for other in unique if not cpus[other].isdisjoint(memory.locality))
        initiators[number] = EMPTY if local == with_cpus and len(local) > 1 else local  # all: none is closest
    return add_nearest_nodes(nodes, initiators)


def add_nearest_nodes(nodes: Sequence[Node], initiators: Mapping[int, CpuSet]) -> tuple[Node, ...]:
    """Set `nearest` of nodes without CPUs or without memory.

    `initiators` are the closest nodes that the firmware reports (ACPI HMAT), by the number of a node; without
    them, distances decide.
    """
    found = []
    for node in nodes:
        if not node.cpus or node.memory_bytes == 0:  # an unknown amount of memory is some memory
            able = [other.number for other in nodes if (other.memory_bytes if node.cpus else other.cpus)]
            reported = initiators.get(node.number, EMPTY)
            near = tuple(number for number in able if number in reported)
            node = node.replace(nearest=near or tuple(find_closest(node, nodes, able)))
        found.append(node)
    return tuple(found)


def find_closest(node: Node, nodes: Sequence[Node], candidates: Iterable[int]) -> dict[int, int]:
    """Map the candidates with the smallest distance from a node to this distance; empty if none is known."""
    distances = dict(zip((other.number for other in nodes), node.distances, strict=False))
    known = {number: distances[number] for number in candidates if number in distances}
    smallest = min(known.values(), default=None)
    return {number: distance for number, distance in known.items() if distance == smallest}
