"""NUMA nodes as the kernel tells them, `sys/devices/system/node`: CPUs, memory, distances, neighbours."""

from collections.abc import Iterator, Sequence

from ompbind.cpuset import EMPTY, CpuSet, named
from ompbind.machine.model import Node, check_size, gpu_remark, with_nearest
from ompbind.machine.sources.filesystem import (
    Root,
    keyed_lines,
    numbered,
    numbers_in,
    parse_sizes,
    read_list,
    read_set,
    whole_number,
)

FOLDER = "sys/devices/system/node"
GPUS = "proc/driver/nvidia/gpus"


def read_nodes(root: Root, online: CpuSet) -> tuple[tuple[Node, ...], list[str]]:
    """Return the NUMA nodes by number, and remarks; a machine that tells of none is one node 0.

    Every CPU is in at most one node. Memory of a GPU that its driver shows as a node is left out.
    """
    folders = numbered(root.names(FOLDER), "node")
    found = folders & (read_list(root, f"{FOLDER}/online") or folders) or folders
    check_size(nodes=len(found))
    gpus = _gpu_nodes(root) & found
    if not found - gpus:
        size = parse_sizes(root.read("proc/meminfo")).get("MemTotal")
        return (Node(number=0, cpus=online, memory_bytes=size),), []
    listed = [_read_node(root, number, online) for number in found - gpus]
    if not any(node.memory_bytes for node in listed):  # recordings without it have zeros everywhere
        listed = [node.replace(memory_bytes=None) for node in listed]
    if not any(node.cpus for node in listed):  # nobody says where CPUs are
        listed[0] = listed[0].replace(cpus=online)
    drafts, doubled = _settle(listed)
    told = {node.number: _initiators(root, node.number) for node in drafts if not node.cpus}
    kept = [node.replace(distances=_distances(node, found, gpus)) for node in drafts]
    return with_nearest(kept, told), list(_remarks(doubled, gpus))


def _read_node(root: Root, number: int, online: CpuSet) -> Node:
    folder = f"{FOLDER}/node{number}"
    cpus = read_set(root, [(f"{folder}/cpumap", f"{folder}/cpulist")])
    if cpus is None:
        cpus = numbered(root.names(folder), "cpu")
    distances = [whole_number(word) for word in (root.read(f"{folder}/distance") or "").split()]
    return Node(
        number=number,
        cpus=cpus & online,
        memory_bytes=parse_sizes(root.read(f"{folder}/meminfo")).get("MemTotal"),
        distances=tuple(distance for distance in distances if distance is not None),
    )


def _settle(listed: Sequence[Node]) -> tuple[list[Node], CpuSet]:
    """Give a CPU that several nodes list to the first of them; return the nodes and the others' numbers."""
    seen, doubled, settled = EMPTY, [], []
    for node in listed:
        if not node.cpus.isdisjoint(seen):
            doubled.append(node.number)
        settled.append(node.replace(cpus=node.cpus - seen))
        seen |= node.cpus
    return settled, CpuSet(doubled)


def _remarks(doubled: CpuSet, gpus: CpuSet) -> Iterator[str]:
    if doubled:
        yield (
            f"{named('NUMA node', doubled)} {'lists' if len(doubled) == 1 else 'list'} CPUs of others: "
            "each CPU counts for the first that lists it"
        )
    if gpus:
        yield gpu_remark(gpus)


def _gpu_nodes(root: Root) -> CpuSet:
    """Return the nodes that are the memory of GPUs, as their driver tells."""
    texts = (root.read(f"{GPUS}/{name}/numa_status") for name in root.names(GPUS))
    return numbers_in(value for text in texts for key, value in keyed_lines(text) if key == "Node")


def _initiators(root: Root, number: int) -> CpuSet:
    """Return the nodes that firmware calls closest to a node: of CPUs (access1) or anything (access0)."""
    folders = (f"{FOLDER}/node{number}/access{kind}/initiators" for kind in (1, 0))
    return next((found for folder in folders if (found := numbered(root.names(folder), "node"))), EMPTY)


def _distances(node: Node, found: CpuSet, gpus: CpuSet) -> tuple[int, ...]:
    """Return the distances of a node without those to nodes that are left out."""
    if not gpus or len(node.distances) != len(found):
        return node.distances
    return tuple(far for number, far in zip(found, node.distances, strict=True) if number not in gpus)
