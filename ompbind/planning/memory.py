"""The memory policies of ranks, and the notes on the memory that ranks use."""

from collections import Counter
from collections.abc import Iterable, Iterator

from ompbind.cpuset import CpuSet, named
from ompbind.machine.model import Machine
from ompbind.machine.nodes import find_closest
from ompbind.planning.plan import MemoryPolicy, Note, Placement, Plan, name_ranks
from ompbind.planning.request import MemoryMode

UNSET, LIMITED = "memory-unset", "memory-limited"
"""Codes of notes: no policy is set, or it has not all nodes of the rank."""


def add_policies(plan: Plan) -> Plan:
    """Return the plan with the requested memory policy for each rank, restricted to allowed NUMA nodes."""
    mode, machine = plan.request.memory, plan.machine
    if mode is MemoryMode.LOCAL or not machine.bindable or str(mode) in dict(machine.refused_policies):
        return plan
    node_of = {cpu: node.number for node in machine.nodes for cpu in node.cpus}
    policies: dict[int, MemoryPolicy | None] = {}  # many ranks can share one tuple of CPUs
    for placement in plan.placements:
        key, nodes = id(placement.cpus), placement.memory_nodes
        if key not in policies and nodes:
            cpus_on = Counter(node_of.get(cpu) for cpu in placement.cpus)
            main_node = max(nodes, key=lambda node: (cpus_on[node], -node))
            policy = MemoryPolicy(mode=mode, nodes=nodes, main_node=main_node)
            narrows = machine.prefers_one_node and mode is MemoryMode.PREFERRED
            policies[key] = policy.main_node_only if narrows else policy
    placements = (placement.replace(memory=policies.get(id(placement.cpus))) for placement in plan.placements)
    return plan.replace(placements=tuple(placements))


def explain_memory(plan: Plan) -> Iterator[Note]:
    """Yield notes on memory that ranks do not have, or not from the requested nodes."""
    yield from _explain_needs(plan)
    machine, mode = plan.machine, plan.request.memory
    is_local = mode is MemoryMode.LOCAL
    remote = CpuSet(measure_remote_memory(machine)) & plan.used
    having = (rank for rank in plan.placements if is_local or rank.memory)
    if remote and (users := [rank for rank in having if not rank.cpuset.isdisjoint(remote)]):
        text = f"{render_not_allowed(machine, remote)}: {name_ranks(users)} with memory of other nodes"
        yield Note(code="memory-remote" if is_local else LIMITED, text=text, warning=not is_local)
    if is_local:
        return
    narrowed = [p for p in plan.placements if p.memory and p.memory.nodes != p.memory_nodes]
    if narrowed:
        chosen = ", ".join(f"rank {rank.rank}: {rank.memory.main_node}" for rank in narrowed if rank.memory)
        text = f"this kernel can prefer only one NUMA node (several from Linux 5.15 on): {chosen}"
        yield Note(code=LIMITED, text=text, warning=True)
    without_policy = [placement for placement in plan.placements if placement.memory is None]
    if without_policy:
        reason = "no NUMA node with memory is known for these CPUs"
        if not machine.bindable:
            reason = "this system cannot bind memory"
        elif refused := dict(machine.refused_policies).get(str(mode)):
            reason = refused
        elif remote:
            reason = render_not_allowed(machine, remote)
        yield make_unset_note(mode, without_policy, reason)


def _explain_needs(plan: Plan) -> Iterator[Note]:
    if not plan.request.memory_bytes:
        return
    memory = {node.number: node.memory_bytes for node in plan.machine.nodes}
    ranks_by_nodes: dict[CpuSet, list[int]] = {}
    for placement in plan.placements:
        ranks_by_nodes.setdefault(CpuSet(placement.memory_nodes), []).append(placement.rank)
    for nodes, ranks in ranks_by_nodes.items():
        needed, present = plan.request.memory_bytes * len(ranks), sum(memory[node] or 0 for node in nodes)
        if nodes and None not in (memory[node] for node in nodes) and needed > present:
            needed_gib, present_gib = (round(number / (1 << 30), 1) for number in (needed, present))
            text = f"{needed_gib:g} GiB of memory needed by {named('rank', ranks)} are more than the "
            text += f"{present_gib:g} GiB of {named('NUMA node', nodes)}"
            yield Note(code="memory-needs", text=text, warning=True)


def render_not_allowed(machine: Machine, cpus: CpuSet) -> str:
    """Return the text about the NUMA nodes of CPUs with remote memory: their memory is not allowed."""
    memory_of = _map_memory(machine)
    with_cpus = (node.number for node in machine.nodes if not node.cpus.isdisjoint(cpus))
    nodes = named("NUMA node", (near for number in with_cpus for near in memory_of[number]))
    return f"memory of {nodes} is not allowed (cpuset.mems: {machine.memory_allowed or 'none'})"


def make_unset_note(mode: MemoryMode, ranks: Iterable[Placement], reason: str) -> Note:
    """Return the warning that ranks will start without the requested memory policy."""
    text = f"--memory {mode} will not be set for {name_ranks(ranks)}: {reason}"
    return Note(code=UNSET, text=text, warning=True)


# The memory that the CPUs of each NUMA node may use: their own, or memory of other nodes.
#
# A cpuset can exclude the memory of NUMA nodes whose CPUs are allowed (cpuset.mems). CPUs on such a node
# use *remote* memory: the allowed memory of other nodes.


UNKNOWN_DISTANCE = 255
"""The distance of a node that is not known; ACPI uses this number for nodes that cannot be reached."""


def _map_memory(machine: Machine) -> dict[int, tuple[int, ...]]:
    """Map each NUMA node to the nodes with its memory, allowed or not."""
    return {node.number: node.nearest if node.memory_bytes == 0 else (node.number,) for node in machine.nodes}


def map_local_memory(machine: Machine) -> dict[int, tuple[int, ...]]:
    """Map each NUMA node to the allowed nodes with its memory: itself, or the nearest nodes with memory."""
    allowed, memory_of = machine.memory_allowed, _map_memory(machine)
    if allowed is None:
        return memory_of
    return {number: tuple(node for node in nodes if node in allowed) for number, nodes in memory_of.items()}


def map_remote_memory(machine: Machine) -> dict[int, dict[int, int]]:
    """Map each NUMA node whose memory is not allowed to the nearest nodes with allowed memory.

    These nodes are mapped to their distance. If no distance is known, they are all nodes with allowed memory.
    """
    memory_of, local = _map_memory(machine), map_local_memory(machine)
    usable = [node.number for node in machine.nodes if node.number in local[node.number]]
    return {
        node.number: find_closest(node, machine.nodes, usable) or dict.fromkeys(usable, UNKNOWN_DISTANCE)
        for node in machine.nodes
        if memory_of[node.number] and not local[node.number]
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
