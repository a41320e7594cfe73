"""The memory that the CPUs of each NUMA node may use: their own, or memory of other nodes.

A cpuset can exclude the memory of NUMA nodes whose CPUs are allowed (cpuset.mems). CPUs on such a node use
*remote* memory: the allowed memory of other nodes.
"""

from ompbind.cpuset import CpuSet
from ompbind.machine.model import Machine
from ompbind.machine.nearest_nodes import find_closest
from ompbind.planning.plan import Plan

UNKNOWN_DISTANCE = 255
"""The distance of a node that is not known; ACPI uses this number for nodes that cannot be reached."""


def map_local_memory(machine: Machine) -> dict[int, tuple[int, ...]]:
    """Map each NUMA node to the allowed nodes with its memory: itself, or the nearest nodes with memory."""
    allowed = machine.memory_allowed
    return {
        number: tuple(node for node in nodes if allowed is None or node in allowed)
        for number, nodes in map_memory(machine).items()
    }


def map_memory(machine: Machine) -> dict[int, tuple[int, ...]]:
    """Map each NUMA node to the nodes with its memory, allowed or not."""
    return {node.number: node.nearest if node.memory_bytes == 0 else (node.number,) for node in machine.nodes}


def map_remote_memory(machine: Machine) -> dict[int, dict[int, int]]:
    """Map each NUMA node whose memory is not allowed to the nearest nodes with allowed memory.

    These nodes are mapped to their distance. If no distance is known, they are all nodes with allowed memory.
    """
    memory_of, local = map_memory(machine), map_local_memory(machine)
    remote = [node for node in machine.nodes if memory_of[node.number] and not local[node.number]]
    if not remote:
        return {}
    usable = [node.number for node in machine.nodes if node.number in local[node.number]]
    return {
        node.number: find_closest(node, machine.nodes, usable) or dict.fromkeys(usable, UNKNOWN_DISTANCE)
        for node in remote
    }


def measure_remote_memory(machine: Machine) -> dict[int, int]:
    """Map each CPU with remote memory to the distance of the nearest allowed memory."""
    remote = map_remote_memory(machine)
    return {
        cpu: min(remote[node.number].values(), default=UNKNOWN_DISTANCE)
        for node in machine.nodes
        if node.number in remote
        for cpu in node.cpus
    }


def find_remote_cpus(plan: Plan) -> CpuSet:
    """Return the CPUs of the ranks that use remote memory."""
    remote = CpuSet(measure_remote_memory(plan.machine))
    return remote & plan.used if remote else remote
