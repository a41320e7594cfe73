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
from ompbind.machine.read.root import (
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
    lines = (line for text in texts for line in keyed_lines(text))
    gpus = numbers_in(value for key, value in lines if key == "Node") & found
    if not found - gpus:
        size = parse_meminfo(root.read("proc/meminfo")).get("MemTotal")
        return (Node(number=0, cpus=online, memory_bytes=size),), []
    nodes = [_read_node(root, number, online) for number in found - gpus]
    if not any(node.memory_bytes for node in nodes):  # recordings without sizes have zeros in all nodes
        nodes = [node.replace(memory_bytes=None) for node in nodes]
    if not any(node.cpus for node in nodes):  # the CPUs of nodes are unknown
        nodes[0] = nodes[0].replace(cpus=online)
    assigned, overlapping = EMPTY, []
    for index, node in enumerate(nodes):
        if not node.cpus.isdisjoint(assigned):
            overlapping.append(node.number)
        distances = node.distances
        if gpus and len(distances) == len(found):
            distances = tuple(distances[i] for i, number in enumerate(found) if number not in gpus)
        nodes[index] = node.replace(cpus=node.cpus - assigned, distances=distances)
        assigned |= node.cpus
    remarks = []
    if overlapping:
        nodes_list = f"{named('NUMA node', overlapping)} {'lists' if len(overlapping) == 1 else 'list'}"
        remarks.append(f"{nodes_list} CPUs of other nodes: each CPU belongs to the first node that lists it")
    if gpus:
        remarks.append(render_gpu_remark(gpus))
    initiators = {node.number: _read_initiators(root, node.number) for node in nodes if not node.cpus}
    return add_nearest_nodes(nodes, initiators), remarks


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


def _read_initiators(root: Root, number: int) -> CpuSet:
    """Return the nodes that the firmware reports as closest to a node.

    Only CPUs count in access1, but also devices in access0, so access1 is read first.
    """
    directories = (f"{NODE_DIRECTORY}/node{number}/access{kind}/initiators" for kind in (1, 0))
    nodes = (numbered(root.names(directory), "node") for directory in directories)
    return next(filter(None, nodes), EMPTY)


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
