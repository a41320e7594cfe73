"""Find the NUMA nodes closest to a node: nodes with memory for a node without, or nodes with CPUs."""

from collections.abc import Iterable, Mapping, Sequence

from ompbind.cpuset import EMPTY, CpuSet
from ompbind.machine.model import Node


def add_nearest_nodes(nodes: Sequence[Node], initiators: Mapping[int, CpuSet]) -> tuple[Node, ...]:
    """Set `nearest` of nodes without CPUs or without memory.

    `initiators` are the closest nodes that the firmware reports (ACPI HMAT), by the number of a node; without
    them, distances decide.
    """
    return tuple(
        node.replace(nearest=_find_nearest(node, nodes, initiators.get(node.number, EMPTY))) for node in nodes
    )


def _find_nearest(node: Node, nodes: Sequence[Node], initiators: CpuSet) -> tuple[int, ...]:
    if node.is_complete:
        return ()
    candidates = [other.number for other in nodes if (other.memory_bytes if node.cpus else other.cpus)]
    near = tuple(number for number in candidates if number in initiators)
    return near or tuple(find_closest(node, nodes, candidates))


def find_closest(node: Node, nodes: Sequence[Node], candidates: Iterable[int]) -> dict[int, int]:
    """Map the candidates with the smallest distance from a node to this distance; empty if none is known."""
    distances = dict(zip((other.number for other in nodes), node.distances, strict=False))
    known = {number: distances[number] for number in candidates if number in distances}
    smallest = min(known.values(), default=None)
    return {number: distance for number, distance in known.items() if distance == smallest}
