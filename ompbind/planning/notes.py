"""Why a plan is as it is: one function for each question that its notes answer, in one table; --strict."""

from collections.abc import Callable, Iterable, Iterator

from ompbind.cpuset import CpuSet, count, named, union
from ompbind.errors import PlanError
from ompbind.machine.model import Level, index_by_cpu, touched
from ompbind.openmp.binding import BindingSyntax
from ompbind.planning.conflicts import explain_neighbours
from ompbind.planning.memory_policy import LIMITED, NARROWED, UNSET, explain_memory
from ompbind.planning.plan import Note, Plan
from ompbind.planning.runtime_choice import choose_syntax
from ompbind.planning.runtime_notes import CONFLICT, explain_runtime
from ompbind.planning.strategies.table import STRATEGIES


def explain(plan: Plan) -> list[Note]:
    """Say what the plan decided that the request did not."""
    return [note for answer in _ANSWERS for note in answer(plan)]


def _explain_machine(plan: Plan) -> Iterator[Note]:
    for remark in plan.machine.remarks:
        yield Note(code="machine", text=remark, warning=True)
    if not plan.machine.bindable:
        text = "this system cannot confine a process to CPUs: ranks only get thread counts"
        yield Note(code="not-bindable", text=text, warning=True)


def _explain_compat(plan: Plan) -> Iterator[Note]:
    """Tell which variables of other programs were read, and as what."""
    for text in (*plan.request.compat_read, *plan.request.compat_others):
        yield Note(code="compat", text=text)


def _explain_numbers(plan: Plan) -> Iterator[Note]:
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
    if other:
        told = ", ".join(f"node:{number} is NUMA node {nodes[number].os_id} of the OS" for number in other)
        text = f"masks count nodes along the machine: {told} (node:# takes these)"
        yield Note(code="node-numbers", text=text)


def _explain_unused(plan: Plan) -> Iterator[Note]:
    """Tell of hardware threads, cores and CPUs set apart that no rank has."""
    used, excluded_by_default = plan.used, plan.machine.excluded_by_default
    cores = plan.machine.at(Level.CORE)
    beside = union(core.cpus for core in touched(cores, used))
    spare = beside & plan.idle - excluded_by_default
    if spare and plan.request.smt != "all" and plan.request.mask is None:
        text = f"hardware threads left idle beside ranks: {named('CPU', spare)} (--smt all uses them)"
        yield Note(code="smt", text=text)
    idle = plan.idle - excluded_by_default
    if free := [core for core in cores if core.cpus & idle and core.cpus.isdisjoint(used)]:
        cpus = union(core.cpus for core in free) & idle
        yield Note(code="idle", text=f"{count(len(free), 'core')} idle ({named('CPU', cpus)})")
    if left := plan.idle & excluded_by_default - beside:
        names = [name for name, cpus in plan.machine.exclusion_reasons if not cpus.isdisjoint(left)]
        text = f"left out as {' or '.join(names)}: {named('CPU', left)} (a mask that names them uses them)"
        yield Note(code="set-apart", text=text)


def _explain_kinds(plan: Plan) -> Iterator[Note]:
    """Tell of ranks, or of threads of one rank, that run on cores of different strength."""
    used = plan.used
    kinds = [kind for kind in plan.machine.kinds if not kind.cpus.isdisjoint(used)]
    if len(kinds) < 2:
        return
    mixed = CpuSet(
        one.rank for one in plan.placements if sum(not kind.cpus.isdisjoint(one.cpuset) for kind in kinds) > 1
    )
    who = f"{named('rank', mixed)} {'mixes' if len(mixed) == 1 else 'mix'}" if mixed else "ranks differ in"
    told = "; ".join(f"{kind.name}: {named('CPU', kind.cpus & used)}" for kind in kinds)
    remedy = " (--core-kind takes one)" if len({kind.name for kind in kinds}) > 1 else ""
    text = f"{who} kinds of cores, of which the weaker finish later{remedy}: {told}"
    yield Note(code="mixed-kinds", text=text)


def _explain_nodes(plan: Plan) -> Iterator[Note]:
    if crossing := CpuSet(one.rank for one in plan.placements if len(one.nodes) > 1):
        subject = f"{named('rank', crossing)} {'has' if len(crossing) == 1 else 'have'}"
        yield Note(code="crosses-nodes", text=f"{subject} CPUs of more than one NUMA node")


def _explain_threads(plan: Plan) -> Iterator[Note]:
    quota, threads = plan.machine.quota, sum(one.threads for one in plan.placements)
    limited = [one.threads for one in plan.placements if one.threads < len(one.cpus)]
    if quota is not None and plan.request.threads is None and limited:
        text = f"the cgroup allows {quota:g} CPUs of time: threads per rank limited to {min(limited)}"
        yield Note(code="quota", text=text, warning=True)
    if quota is not None and threads > max(quota, len(plan.placements)):
        text = f"the cgroup allows {quota:g} CPUs of time for {threads} threads: expect them to be throttled"
        yield Note(code="quota", text=text, warning=True)
    if crowded := [one.rank for one in plan.placements if one.threads > len(one.cpus)]:
        text = f"more threads than CPUs in {named('rank', crowded)}: expect them to wait for each other"
        yield Note(code="oversubscribed", text=text, warning=True)


def _explain_sharing(plan: Plan) -> Iterator[Note]:
    """Tell of ranks that share cores or CPUs, unless the strategy gives all of them the same cores."""
    core_of = index_by_cpu(plan.machine.at(Level.CORE))
    owners: dict[int, set[int]] = {}
    if not STRATEGIES[plan.request.strategy].overlapping:
        for one in plan.placements:
            for cpu in one.cpus:
                owners.setdefault(core_of[cpu], set()).add(one.rank)
    if crowd := CpuSet(rank for ranks in owners.values() if len(ranks) > 1 for rank in ranks):
        yield Note(code="shared-cores", text=f"{named('rank', crowd)} share cores with others")
    if sum(len(one.cpus) for one in plan.placements) != len(plan.used):
        yield Note(code="shared", text="ranks share CPUs, as asked")


def _explain_places(plan: Plan) -> Iterator[Note]:
    without = CpuSet(one.rank for one in plan.placements if not one.places)
    if without and choose_syntax(plan.request) is not BindingSyntax.UNBOUND and plan.machine.bindable:
        text = f"OMP_PLACES of {named('rank', without)} is too long for some runtimes"
        text += ": threads are not bound (--bind rank is short)"
        yield Note(code="places-too-long", text=text, warning=True)


_ANSWERS: tuple[Callable[[Plan], Iterable[Note]], ...] = (
    _explain_compat,
    _explain_machine,
    _explain_numbers,
    _explain_unused,
    _explain_kinds,
    _explain_nodes,
    explain_memory,
    _explain_threads,
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
