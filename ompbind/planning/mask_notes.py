"""The notes of a plan on its mask: what its numbers and domains mean, and which of its CPUs --smt uses."""

from collections.abc import Iterator

from ompbind.cpuset import CpuSet, count, named, union
from ompbind.machine.model import Level, Machine, find_overlapping
from ompbind.masks.mask import Mask
from ompbind.planning.plan import Note, Plan
from ompbind.planning.request import Smt


def explain_threads(machine: Machine, limit: Smt, mask: Mask, named_cpus: CpuSet) -> Iterator[Note]:
    """Explain that --smt uses fewer CPUs than the mask names, or that domains mean all hardware threads."""
    by_core = [core.cpus & named_cpus for core in machine.at(Level.CORE)]
    names_domain = any(item.chain and not item.excluded for part in mask.parts for item in part)
    if limit == "auto" and names_domain and (most := max(map(len, by_core))) > 1:
        text = f"domains in the mask mean all their hardware threads: up to {most} per core are used"
        yield Note(code="smt", text=f"{text} (--smt 1 uses one)")
    if isinstance(limit, int) and (pruned := union(cpus for cpus in by_core if len(cpus) > limit)):
        uses = f"--smt {limit} uses only {count(limit, 'CPU')} of each core"
        text = f"the mask names {named('CPU', pruned)}; {uses}"
        yield Note(code="smt", text=text)


def explain_numbers(plan: Plan, mask: Mask) -> Iterator[Note]:
    """Explain which NUMA nodes a mask means where its node numbers are not OS numbers."""
    nodes = find_overlapping(plan.machine.at(Level.NODE), plan.machine.allowed)
    named_numbers = {
        number
        for part in mask.parts
        for item in part
        for selector in item.chain[:1]
        if selector.level is Level.NODE and not selector.by_os_number
        for number in selector.numbers
    }
    different = [
        number for number in sorted(named_numbers) if number < len(nodes) and nodes[number].os_id != number
    ]
    if different:
        pairs = ", ".join(f"node:{number} is OS node {nodes[number].os_id}" for number in different)
        text = f"masks number NUMA nodes in topology order: {pairs} (node:# takes OS numbers)"
        yield Note(code="node-numbers", text=text)
