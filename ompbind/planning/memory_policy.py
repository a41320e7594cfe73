"""Deciding the memory policies of ranks, and what there is to say of them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ompbind.cpuset import CpuSet, named
from ompbind.machine.model import Machine
from ompbind.planning.plan import MemoryPolicy, Note, Placement, Plan
from ompbind.planning.request import MemoryMode

UNSET, LIMITED, NARROWED = "memory-unset", "memory-limited", "memory-narrowed"
"""Codes of the notes on ranks whose memory does not come from where it was asked for."""


def add_policies(plan: Plan) -> Plan:
    """Give every rank the memory policy that was asked for, for those of its nodes that may be used."""
    if plan.request.memory is MemoryMode.LOCAL or not plan.machine.bindable:
        return plan
    node_of = {cpu: node.number for node in plan.machine.nodes for cpu in node.cpus}
    distinct = {id(one.cpus): one for one in plan.placements}  # many ranks can have one tuple of CPUs
    policies = {key: _make_policy(plan, one, node_of) for key, one in distinct.items()}
    placements = (one.replace(memory=policies[id(one.cpus)]) for one in plan.placements)
    return plan.replace(placements=tuple(placements))


def _make_policy(plan: Plan, one: Placement, node_of: Mapping[int, int]) -> MemoryPolicy | None:
    nodes = usable(plan.machine, [one])
    if not nodes:
        return None
    cpus = [node_of.get(cpu) for cpu in one.cpus]
    first = max(nodes, key=lambda node: (cpus.count(node), -node))
    return MemoryPolicy(mode=plan.request.memory, nodes=tuple(nodes), first=first)


def usable(machine: Machine, placements: Iterable[Placement]) -> CpuSet:
    """Return those nodes that memory of ranks should come from which this process may have memory of."""
    nodes = CpuSet(node for one in placements for node in one.memory_nodes)
    return nodes if machine.memory_allowed is None else nodes & machine.memory_allowed


def explain_memory(plan: Plan) -> Iterator[Note]:
    """Say from where memory comes, as far as it is not plainly the one node of each rank."""
    if plan.request.memory is not MemoryMode.LOCAL:
        served = [one for one in plan.placements if one.memory]
        yield from _explain_nodes(plan, served)
        yield from _explain_several(plan.request.memory, served)
        yield from _explain_unset(plan)


def find_lacking(placements: Iterable[Placement]) -> CpuSet:
    """Return the nodes that have CPUs of ranks but no memory."""
    return CpuSet(node for one in placements for node in one.nodes if node not in one.memory_nodes)


def _explain_nodes(plan: Plan, served: Sequence[Placement]) -> Iterator[Note]:
    """Tell of nodes of ranks that have no memory, or have some, but not for this process."""
    if lacking := find_lacking(served):
        which = _ranks(one for one in served if not lacking.isdisjoint(CpuSet(one.nodes)))
        text = f"{named('NUMA node', lacking)} without memory: that of {which} comes from the nearest"
        yield Note(code="memory-nearest", text=f"{text} that have some")
    short = [one for one in served if one.memory and len(one.memory.nodes) < len(one.memory_nodes)]
    if short:
        refused = CpuSet(node for one in short for node in one.memory_nodes) - usable(plan.machine, short)
        text = f"{_refusal(plan, refused)}: none from there for {_ranks(short)}"
        yield Note(code=LIMITED, text=text, warning=True)


def _refusal(plan: Plan, nodes: CpuSet) -> str:
    allowed = plan.machine.memory_allowed or "none"
    return f"memory of {named('NUMA node', nodes)} is not allowed here (cpuset.mems: {allowed})"


def _explain_several(mode: MemoryMode, served: Sequence[Placement]) -> Iterator[Note]:
    several = [one for one in served if one.memory and len(one.memory.nodes) > 1]
    single = [one for one in served if one.memory and len(one.memory.nodes) == 1]
    if several and mode is not MemoryMode.INTERLEAVE:
        text = f"memory of {_ranks(several)} may come from several NUMA nodes: from the one among them"
        yield Note(code="memory-several", text=f"{text} that is nearest to the CPU that asks first")
    if single and mode is MemoryMode.INTERLEAVE:
        text = f"memory of {_ranks(single)} comes from one NUMA node: there is nothing to interleave"
        yield Note(code="memory-single", text=text)


def _explain_unset(plan: Plan) -> Iterator[Note]:
    without = [one for one in plan.placements if one.memory is None]
    nodes = CpuSet(node for one in without for node in one.memory_nodes)
    if not plan.machine.bindable:
        why = "this system cannot bind memory"
    elif nodes:
        why = _refusal(plan, nodes)
    else:
        why = "no NUMA node with memory is known for their CPUs"
    if without:
        yield unset_note(plan.request.memory, without, why)


def unset_note(mode: MemoryMode, ranks: Iterable[Placement], why: str) -> Note:
    """Say which ranks start without the policy that was asked for, and why."""
    return Note(code=UNSET, text=f"no --memory {mode} for {_ranks(ranks)}: {why}", warning=True)


def _ranks(placements: Iterable[Placement]) -> str:
    return named("rank", CpuSet(one.rank for one in placements))
