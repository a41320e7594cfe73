"""Why a plan is as it is: one function for each question that its notes answer, in one table; --strict."""

from collections.abc import Callable

from ompbind.cpuset import CpuSet, count, named, union
from ompbind.errors import PlanError
from ompbind.machine.model import Level, index_by_cpu, touched
from ompbind.openmp.binding import Style
from ompbind.planning.conflicts import explain_neighbours
from ompbind.planning.memory_policy import LIMITED, NARROWED, UNSET, explain_memory
from ompbind.planning.plan import Note, Plan
from ompbind.planning.runtime_choice import choose_style
from ompbind.planning.runtime_notes import CONFLICT, explain_runtime
from ompbind.planning.strategies.table import STRATEGIES


def explain(plan: Plan) -> list[Note]:
    """Say what the plan decided that the request did not."""
    return [note for answer in _ANSWERS for note in answer(plan)]


def _explain_machine(plan: Plan) -> list[Note]:
    notes = [Note(code="machine", text=remark, warning=True) for remark in plan.machine.remarks]
    if not plan.machine.bindable:
        text = "this system cannot confine a process to CPUs: ranks only get thread counts"
        notes.append(Note(code="not-bindable", text=text, warning=True))
    return notes


def _explain_compat(plan: Plan) -> list[Note]:
    """Tell which variables of other programs were read, and as what."""
    compat = plan.request.compat
    return [Note(code="compat", text=text) for text in (*compat.read, *compat.others)] if compat else []


def _explain_numbers(plan: Plan) -> list[Note]:
    """Tell which NUMA nodes a mask means where the OS numbers them otherwise."""
    nodes = touched(plan.machine.at(Level.NODE), plan.machine.allowed)
    asked = {
        number
        for part in (plan.request.mask.parts if plan.request.mask else ())
        for item in part
        for selector in item.chain[:1]
        if selector.level is Level.NODE and not selector.by_os_number
        for number in selector.numbers
    }
    other = [number for number in sorted(asked) if number < len(nodes) and nodes[number].os_id != number]
    if not other:
        return []
    told = ", ".join(f"node:{number} is NUMA node {nodes[number].os_id} of the OS" for number in other)
    return [
        Note(code="node-numbers", text=f"masks count nodes along the machine: {told} (node:# takes these)")
    ]


def _explain_smt(plan: Plan) -> list[Note]:
    used = plan.used
    cores = plan.machine.at(Level.CORE)
    spare = union(core.cpus - used for core in touched(cores, used)) & plan.idle - plan.machine.apart
    if not spare or plan.request.smt == "all" or plan.request.mask is not None:
        return []
    text = f"hardware threads left idle beside ranks: {named('CPU', spare)} (--smt all uses them)"
    return [Note(code="smt", text=text)]


def _explain_idle(plan: Plan) -> list[Note]:
    used = plan.used
    idle = plan.idle - plan.machine.apart
    free = [core for core in plan.machine.at(Level.CORE) if core.cpus & idle and core.cpus.isdisjoint(used)]
    if not free:
        return []
    cpus = union(core.cpus for core in free) & idle
    return [Note(code="idle", text=f"{count(len(free), 'core')} idle ({named('CPU', cpus)})")]


def _explain_apart(plan: Plan) -> list[Note]:
    used = union(core.cpus for core in touched(plan.machine.at(Level.CORE), plan.used))
    left = plan.idle & plan.machine.apart - used
    if not left:
        return []
    names = [name for name, cpus in plan.machine.reasons_apart if not cpus.isdisjoint(left)]
    text = f"left out as {' or '.join(names)}: {named('CPU', left)} (a mask that names them uses them)"
    return [Note(code="set-apart", text=text)]


def _explain_kinds(plan: Plan) -> list[Note]:
    """Tell of ranks, or of threads of one rank, that run on cores of different strength."""
    used = plan.used
    kinds = [kind for kind in plan.machine.kinds if not kind.cpus.isdisjoint(used)]
    if len(kinds) < 2:
        return []
    mixed = CpuSet(
        one.rank for one in plan.placements if sum(not kind.cpus.isdisjoint(one.cpuset) for kind in kinds) > 1
    )
    who = f"{named('rank', mixed)} {'mixes' if len(mixed) == 1 else 'mix'}" if mixed else "ranks differ in"
    told = "; ".join(f"{kind.name}: {named('CPU', kind.cpus & used)}" for kind in kinds)
    remedy = " (--core-kind takes one)" if len({kind.name for kind in kinds}) > 1 else ""
    text = f"{who} kinds of cores, of which the weaker finish later{remedy}: {told}"
    return [Note(code="mixed-kinds", text=text)]


def _explain_nodes(plan: Plan) -> list[Note]:
    crossing = CpuSet(one.rank for one in plan.placements if len(one.nodes) > 1)
    if not crossing:
        return []
    subject = f"{named('rank', crossing)} {'has' if len(crossing) == 1 else 'have'}"
    return [Note(code="crosses-nodes", text=f"{subject} CPUs of more than one NUMA node")]


def _explain_threads(plan: Plan) -> list[Note]:
    notes = []
    quota, threads = plan.machine.quota, sum(one.threads for one in plan.placements)
    limited = [one.threads for one in plan.placements if one.threads < len(one.cpus)]
    if quota is not None and plan.request.threads is None and limited:
        text = f"the cgroup allows {quota:g} CPUs of time: threads per rank limited to {min(limited)}"
        notes.append(Note(code="quota", text=text, warning=True))
    if quota is not None and threads > max(quota, len(plan.placements)):
        text = f"the cgroup allows {quota:g} CPUs of time for {threads} threads: expect them to be throttled"
        notes.append(Note(code="quota", text=text, warning=True))
    crowded = [one.rank for one in plan.placements if one.threads > len(one.cpus)]
    if crowded:
        text = f"more threads than CPUs in {named('rank', crowded)}: expect them to wait for each other"
        notes.append(Note(code="oversubscribed", text=text, warning=True))
    return notes


def _explain_crowd(plan: Plan) -> list[Note]:
    if STRATEGIES[plan.request.strategy].overlapping:
        return []
    owners: dict[int, set[int]] = {}
    core_of = index_by_cpu(plan.machine.at(Level.CORE))
    for one in plan.placements:
        for cpu in one.cpus:
            owners.setdefault(core_of[cpu], set()).add(one.rank)
    crowd = CpuSet(rank for ranks in owners.values() if len(ranks) > 1 for rank in ranks)
    if not crowd:
        return []
    return [Note(code="shared-cores", text=f"{named('rank', crowd)} share cores with others")]


def _explain_sharing(plan: Plan) -> list[Note]:
    total = sum(len(one.cpus) for one in plan.placements)
    if total == len(plan.used):
        return []
    return [Note(code="shared", text="ranks share CPUs, as asked", warning=False)]


def _explain_places(plan: Plan) -> list[Note]:
    wanted = choose_style(plan.request) is not Style.UNBOUND and plan.machine.bindable
    without = CpuSet(one.rank for one in plan.placements if not one.places)
    if not (wanted and without):
        return []
    text = f"OMP_PLACES of {named('rank', without)} is too long for some runtimes"
    text += ": threads are not bound (--bind rank is short)"
    return [Note(code="places-too-long", text=text, warning=True)]


_ANSWERS: tuple[Callable[[Plan], list[Note]], ...] = (
    _explain_compat,
    _explain_machine,
    _explain_numbers,
    _explain_smt,
    _explain_idle,
    _explain_apart,
    _explain_kinds,
    _explain_nodes,
    explain_memory,
    _explain_threads,
    _explain_crowd,
    _explain_sharing,
    explain_neighbours,
    _explain_places,
    explain_runtime,
)
"""Every question that the notes of a plan answer, in the order of its notes."""

CANNOT_BIND = ("not-bindable", "places-too-long", "preload", CONFLICT, UNSET, LIMITED, NARROWED)
"""The codes of notes on what cannot be bound as asked."""


def check_strict(plan: Plan) -> None:
    """Refuse a plan of a strict request that has a note on what cannot be bound; raises PlanError."""
    faults = [note.text for note in plan.notes if note.code in CANNOT_BIND]
    if plan.request.strict and faults:
        raise PlanError("; ".join(faults), hint="without --strict this is a warning")
