"""NUMA nodes from `sys/devices/system/node`.

    node/online                            the nodes that exist
    node/nodeN/cpumap                      the CPUs of node N
    node/nodeN/meminfo                     its memory ("Node 0 MemTotal: 4096 kB")
    node/nodeN/distance                    its distances to all nodes (ACPI SLIT, 10 is local)
    node/nodeN/accessK/initiators/nodeM    a node with CPUs that is closest to node N (ACPI HMAT)

A CPU that several nodes list belongs to the first of them. Nodes that are the memory of GPUs are excluded.
"""

from collections.abc import Iterator

from ompbind.cpuset import EMPTY, CpuSet, named
from ompbind.machine.model import Node, check_size, render_gpu_remark
from ompbind.machine.nodes import add_nearest_nodes
from ompbind.machine.sources.root import (
    Root,
    keyed_lines,
    numbered,
    numbers_in,
    parse_meminfo,
    read_list,
    read_set,
    whole_number,
)
from ompbind.record import Record

NODE_DIRECTORY = "sys/devices/system/node"
GPU_DIRECTORY = "proc/driver/nvidia/gpus"


def read_nodes(root: Root, online: CpuSet) -> tuple[tuple[Node, ...], list[str]]:
    """Return the NUMA nodes by number, and remarks; a machine without NUMA files is one node 0.

    Every CPU is in at most one node. Nodes that are the memory of a GPU are excluded.
    """
    directories = numbered(root.names(NODE_DIRECTORY), "node")
    found = directories & (read_list(root, f"{NODE_DIRECTORY}/online") or directories) or directories
    check_size(nodes=len(found))
    texts = (root.read(f"{GPU_DIRECTORY}/{name}/numa_status") for name in root.names(GPU_DIRECTORY))
    gpus = numbers_in(value for text in texts for key, value in keyed_lines(text) if key == "Node") & found
    if not found - gpus:
        size = parse_meminfo(root.read("proc/meminfo")).get("MemTotal")
        return (Node(number=0, cpus=online, memory_bytes=size),), []
    listed = [_read_node(root, number, online) for number in found - gpus]
    if not any(node.memory_bytes for node in listed):  # recordings without sizes have zeros in all nodes
        listed = [node.replace(memory_bytes=None) for node in listed]
    if not any(node.cpus for node in listed):  # the CPUs of nodes are unknown
        listed[0] = listed[0].replace(cpus=online)
    assigned, overlapping, disjoint = EMPTY, EMPTY, []
    for node in listed:  # each CPU stays in the first node that lists it
        if not node.cpus.isdisjoint(assigned):
            overlapping |= CpuSet((node.number,))
        disjoint.append(node.replace(cpus=node.cpus - assigned))
        assigned |= node.cpus
    nodes = tuple(node.replace(distances=_drop_distances(node, found, gpus)) for node in disjoint)
    if not all(node.is_complete for node in nodes):
        initiators = {node.number: _read_initiators(root, node.number) for node in nodes if not node.cpus}
        nodes = add_nearest_nodes(nodes, initiators)
    return nodes, list(_make_remarks(overlapping, gpus))


def _read_node(root: Root, number: int, online: CpuSet) -> Node:
    directory = f"{NODE_DIRECTORY}/node{number}"
    cpus = read_set(root, [(f"{directory}/cpumap", f"{directory}/cpulist")])
    if cpus is None:
        cpus = numbered(root.names(directory), "cpu")
    distances = [whole_number(word) for word in (root.read(f"{directory}/distance") or "").split()]
    return Node(
        number=number,
        cpus=cpus & online,
        memory_bytes=parse_meminfo(root.read(f"{directory}/meminfo")).get("MemTotal"),
        distances=tuple(distance for distance in distances if distance is not None),
    )


def _make_remarks(overlapping: CpuSet, gpus: CpuSet) -> Iterator[str]:
    if overlapping:
        yield (
            f"{named('NUMA node', overlapping)} {'lists' if len(overlapping) == 1 else 'list'} CPUs of other "
            "nodes: each CPU belongs to the first node that lists it"
        )
    if gpus:
        yield render_gpu_remark(gpus)


def _read_initiators(root: Root, number: int) -> CpuSet:
    """Return the nodes that the firmware reports as closest to a node.

    Only CPUs count in access1, but also devices in access0, so access1 is read first.
    """
    directories = (f"{NODE_DIRECTORY}/node{number}/access{kind}/initiators" for kind in (1, 0))
    nodes = (numbered(root.names(directory), "node") for directory in directories)
    return next(filter(None, nodes), EMPTY)


def _drop_distances(node: Node, found: CpuSet, gpus: CpuSet) -> tuple[int, ...]:
    """Return the distances of a node to all nodes but the excluded ones."""
    if not gpus or len(node.distances) != len(found):
        return node.distances
    pairs = zip(found, node.distances, strict=True)
    return tuple(distance for number, distance in pairs if number not in gpus)


# How much memory of each NUMA node is free, from `sys/devices/system/node/nodeN/meminfo`.
#
# A module of its own: a start of ranks reads the nodes, and not how much of them is free.


class MemorySize(Record):
    """The memory of the machine, or of one NUMA node, in bytes; `free` includes reclaimable caches."""

    total: int
    free: int
    node: int | None = None

    @property
    def share_free(self) -> float:
        """The free share, 0 to 1."""
        return self.free / self.total if self.total else 1.0


def read_memory_sizes(root: Root) -> Iterator[MemorySize]:
    """Yield the size of every NUMA node with memory; file caches count as free."""
    for node in numbered(root.names(NODE_DIRECTORY), "node"):
        sizes = parse_meminfo(root.read(f"{NODE_DIRECTORY}/node{node}/meminfo"))
        total, free = sizes.get("MemTotal"), sizes.get("MemFree")
        if total and free is not None:
            caches = ("Active(file)", "Inactive(file)", "SReclaimable")
            yield MemorySize(node=node, total=total, free=free + sum(sizes.get(name, 0) for name in caches))
