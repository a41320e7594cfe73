"""The memory policies of ranks, and the notes on the memory that ranks use."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from ompbind.cpuset import CpuSet, named
from ompbind.machine.model import Machine
from ompbind.machine.nodes import find_closest
from ompbind.planning.plan import MemoryPolicy, Note, Placement, Plan
from ompbind.planning.request import MemoryMode

UNSET: str = "memory-unset"
LIMITED: str = "memory-limited"
NARROWED: str = "memory-narrowed"
"""Codes of notes: no policy is set, some nodes are not allowed, or one of several nodes is preferred."""


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
    """Yield notes on memory that comes from several NUMA nodes, or not from the requested nodes."""
    yield from _explain_needs(plan)
    if plan.request.memory is MemoryMode.LOCAL:
        yield from _explain_remote(plan, plan.placements)
        return
    with_policy = [placement for placement in plan.placements if placement.memory]
    if without := find_nodes_without_memory(plan.machine, with_policy):
        ranks = _ranks(rank for rank in with_policy if not without.isdisjoint(CpuSet(rank.nodes)))
        text = f"{named('NUMA node', without)} {'has' if len(without) == 1 else 'have'} no memory: "
        text += f"memory of {ranks} comes from the nearest node that has some"
        yield Note(code="memory-nearest", text=text)
    yield from _explain_remote(plan, with_policy)
    yield from _explain_several(plan.request.memory, with_policy)
    narrowed = [rank for rank in with_policy if rank.memory and rank.memory.nodes != rank.memory_nodes]
    if narrowed:
        chosen = ", ".join(f"rank {rank.rank}: {rank.memory.main_node}" for rank in narrowed if rank.memory)
        text = f"this kernel can prefer only one NUMA node (several from Linux 5.15 on): {chosen}"
        yield Note(code=NARROWED, text=text, warning=True)
    without_policy = [placement for placement in plan.placements if placement.memory is None]
    if without_policy:
        if not plan.machine.bindable:
            reason = "this system cannot bind memory"
        elif refused := dict(plan.machine.refused_policies).get(str(plan.request.memory)):
            reason = refused
        elif remote := find_remote_cpus(plan):
            reason = render_not_allowed(plan.machine, remote)
        else:
            reason = "no NUMA node with memory is known for these CPUs"
        yield make_unset_note(plan.request.memory, without_policy, reason)


def _explain_needs(plan: Plan) -> Iterator[Note]:
    """Warn if ranks will need more memory than their NUMA nodes have."""
    if not plan.request.memory_bytes:
        return
    memory = {node.number: node.memory_bytes for node in plan.machine.nodes}
    ranks_by_nodes: dict[CpuSet, list[int]] = {}
    for placement in plan.placements:
        ranks_by_nodes.setdefault(CpuSet(placement.memory_nodes), []).append(placement.rank)
    for nodes, ranks in ranks_by_nodes.items():
        needed, present = plan.request.memory_bytes * len(ranks), sum(memory[node] or 0 for node in nodes)
        if nodes and None not in (memory[node] for node in nodes) and needed > present:
            need, have = ("needs" if len(ranks) == 1 else "need"), ("has" if len(nodes) == 1 else "have")
            needed_gib, present_gib = (round(number / (1 << 30), 1) for number in (needed, present))
            text = f"{named('rank', ranks)} {need} {needed_gib:g} GiB of memory, but "
            text += f"{named('NUMA node', nodes)} {have} {present_gib:g} GiB"
            yield Note(code="memory-needs", text=text, warning=True)


def find_nodes_without_memory(machine: Machine, placements: Iterable[Placement]) -> CpuSet:
    """Return the NUMA nodes (OS numbers) of the ranks' CPUs that have no memory."""
    without = CpuSet(node.number for node in machine.nodes if node.memory_bytes == 0)
    return without & CpuSet(node for placement in placements for node in placement.nodes)


def _explain_remote(plan: Plan, placements: Sequence[Placement]) -> Iterator[Note]:
    """Yield a note on ranks with remote memory: a warning if they have a memory policy."""
    cpus = find_remote_cpus(plan)
    ranks = [placement for placement in placements if cpus and not placement.cpuset.isdisjoint(cpus)]
    if not ranks:
        return
    uses = "uses" if len(cpus) == 1 else "use"
    why = render_not_allowed(plan.machine, cpus)
    text = f"{why}: {named('CPU', cpus)} ({_ranks(ranks)}) {uses} memory of other nodes"
    is_limited = plan.request.memory is not MemoryMode.LOCAL
    yield Note(code=LIMITED if is_limited else "memory-remote", text=text, warning=is_limited)


def render_not_allowed(machine: Machine, cpus: CpuSet) -> str:
    """Return the text about the NUMA nodes of CPUs with remote memory: their memory is not allowed."""
    memory_of = map_memory(machine)
    with_cpus = (node.number for node in machine.nodes if not node.cpus.isdisjoint(cpus))
    nodes = named("NUMA node", (near for number in with_cpus for near in memory_of[number]))
    return f"memory of {nodes} is not allowed (cpuset.mems: {machine.memory_allowed or 'none'})"


def _explain_several(mode: MemoryMode, placements: Sequence[Placement]) -> Iterator[Note]:
    """Yield notes on ranks with several memory nodes, and on interleaving over a single node."""
    several = [placement for placement in placements if placement.memory and len(placement.memory.nodes) > 1]
    single = [placement for placement in placements if placement.memory and len(placement.memory.nodes) == 1]
    interleaves = mode in (MemoryMode.INTERLEAVE, MemoryMode.WEIGHTED)
    if several and not interleaves:
        text = f"memory of {_ranks(several)} may come from several NUMA nodes"
        source = "each page comes from the node nearest to the CPU that first uses it"
        yield Note(code="memory-several", text=f"{text}: {source}")
    if single and interleaves:
        whose = "its memory comes from one NUMA node"
        if len(single) > 1:
            whose = "the memory of each comes from one NUMA node"
        yield Note(code="memory-single", text=f"nothing to interleave for {_ranks(single)}: {whose}")


def make_unset_note(mode: MemoryMode, ranks: Iterable[Placement], reason: str) -> Note:
    """Return the warning that ranks will start without the requested memory policy."""
    text = f"--memory {mode} will not be set for {_ranks(ranks)}: {reason}"
    return Note(code=UNSET, text=text, warning=True)


def _ranks(placements: Iterable[Placement]) -> str:
    return named("rank", CpuSet(placement.rank for placement in placements))


# The memory that the CPUs of each NUMA node may use: their own, or memory of other nodes.
#
# A cpuset can exclude the memory of NUMA nodes whose CPUs are allowed (cpuset.mems). CPUs on such a node
# use *remote* memory: the allowed memory of other nodes.


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
