"""The memory policies of ranks, and the notes on them."""

from __future__ import annotations

from ompbind.cpuset import CpuSet, named
from ompbind.machine.model import Machine
from ompbind.planning.plan import MemoryPolicy, Note, Placement, Plan
from ompbind.planning.request import MemoryMode

TYPE_CHECKING = False  # importing typing takes time: see record.py
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

UNSET, LIMITED, NARROWED = "memory-unset", "memory-limited", "memory-narrowed"
"""Codes of notes: no policy is set, some nodes are not allowed, or one of several nodes is preferred."""


def add_policies(plan: Plan) -> Plan:
    """Return the plan with the requested memory policy for each rank, restricted to allowed NUMA nodes."""
    if plan.request.memory is MemoryMode.LOCAL or not plan.machine.bindable:
        return plan
    node_of = {cpu: node.number for node in plan.machine.nodes for cpu in node.cpus}
    # many ranks can share one tuple of CPUs: make a policy for each tuple only
    distinct = {id(placement.cpus): placement for placement in plan.placements}
    policies = {key: _make_policy(plan, placement, node_of) for key, placement in distinct.items()}
    placements = (placement.replace(memory=policies[id(placement.cpus)]) for placement in plan.placements)
    return plan.replace(placements=tuple(placements))


def _make_policy(plan: Plan, placement: Placement, node_of: Mapping[int, int]) -> MemoryPolicy | None:
    """Return the policy of a rank, None if none of its nodes is allowed; `node_of` is CPU → node."""
    nodes = find_usable_nodes(plan.machine, [placement])
    if not nodes:
        return None
    node_of_each_cpu = [node_of.get(cpu) for cpu in placement.cpus]
    main_node = max(nodes, key=lambda node: (node_of_each_cpu.count(node), -node))
    return MemoryPolicy(mode=plan.request.memory, nodes=tuple(nodes), main_node=main_node)


def find_usable_nodes(machine: Machine, placements: Iterable[Placement]) -> CpuSet:
    """Return the memory nodes of ranks (OS numbers) whose memory is allowed (cpuset.mems)."""
    nodes = CpuSet(node for placement in placements for node in placement.memory_nodes)
    return nodes if machine.memory_allowed is None else nodes & machine.memory_allowed


def explain_memory(plan: Plan) -> Iterator[Note]:
    """Yield notes on memory that comes from several NUMA nodes, or not from the requested nodes."""
    if plan.request.memory is not MemoryMode.LOCAL:
        with_policy = [placement for placement in plan.placements if placement.memory]
        yield from _explain_nodes(plan, with_policy)
        yield from _explain_several(plan.request.memory, with_policy)
        yield from _explain_unset(plan)


def find_nodes_without_memory(placements: Iterable[Placement]) -> CpuSet:
    """Return the NUMA nodes (OS numbers) of the ranks' CPUs that have no memory."""
    return CpuSet(
        node for placement in placements for node in placement.nodes if node not in placement.memory_nodes
    )


def _explain_nodes(plan: Plan, placements: Sequence[Placement]) -> Iterator[Note]:
    """Yield notes on NUMA nodes without memory, and on nodes whose memory is not allowed."""
    if without := find_nodes_without_memory(placements):
        ranks = _ranks(
            placement for placement in placements if not without.isdisjoint(CpuSet(placement.nodes))
        )
        verb = "has" if len(without) == 1 else "have"
        text = (
            f"{named('NUMA node', without)} {verb} no memory: memory of {ranks} comes from the nearest node"
        )
        yield Note(code="memory-nearest", text=f"{text} that has some")
    limited = [
        placement
        for placement in placements
        if placement.memory and len(placement.memory.nodes) < len(placement.memory_nodes)
    ]
    if limited:
        requested = CpuSet(node for placement in limited for node in placement.memory_nodes)
        not_allowed = requested - find_usable_nodes(plan.machine, limited)
        text = f"{_render_not_allowed(plan, not_allowed)}: it is not used for {_ranks(limited)}"
        yield Note(code=LIMITED, text=text, warning=True)


def _render_not_allowed(plan: Plan, nodes: CpuSet) -> str:
    allowed = plan.machine.memory_allowed or "none"
    return f"memory of {named('NUMA node', nodes)} is not allowed (cpuset.mems: {allowed})"


def _explain_several(mode: MemoryMode, placements: Sequence[Placement]) -> Iterator[Note]:
    """Yield notes on ranks with several memory nodes, and on interleaving over a single node."""
    several = [placement for placement in placements if placement.memory and len(placement.memory.nodes) > 1]
    single = [placement for placement in placements if placement.memory and len(placement.memory.nodes) == 1]
    if several and mode is not MemoryMode.INTERLEAVE:
        text = f"memory of {_ranks(several)} may come from several NUMA nodes"
        source = "each page comes from the node nearest to the CPU that first uses it"
        yield Note(code="memory-several", text=f"{text}: {source}")
    if single and mode is MemoryMode.INTERLEAVE:
        whose = "its memory comes from one NUMA node"
        if len(single) > 1:
            whose = "the memory of each comes from one NUMA node"
        yield Note(code="memory-single", text=f"nothing to interleave for {_ranks(single)}: {whose}")


def _explain_unset(plan: Plan) -> Iterator[Note]:
    """Yield a note on the ranks without a memory policy."""
    without = [placement for placement in plan.placements if placement.memory is None]
    nodes = CpuSet(node for placement in without for node in placement.memory_nodes)
    if not plan.machine.bindable:
        reason = "this system cannot bind memory"
    elif nodes:
        reason = _render_not_allowed(plan, nodes)
    else:
        reason = "no NUMA node with memory is known for these CPUs"
    if without:
        yield make_unset_note(plan.request.memory, without, reason)


def make_unset_note(mode: MemoryMode, ranks: Iterable[Placement], reason: str) -> Note:
    """Return the warning that ranks will start without the requested memory policy."""
    text = f"--memory {mode} will not be set for {_ranks(ranks)}: {reason}"
    return Note(code=UNSET, text=text, warning=True)


def _ranks(placements: Iterable[Placement]) -> str:
    return named("rank", CpuSet(placement.rank for placement in placements))
