"""Why a plan is as it is: the reason for each choice that was made, whoever made it, in words.

Notes tell what a user may not expect; reasons tell everything, in the order in which it was decided.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from ompbind.cpuset import CpuSet, count, named
from ompbind.machine.model import Level, index_by_cpu, touched
from ompbind.masks.mask import mask_text
from ompbind.openmp.binding import Bind
from ompbind.planning.memory_policy import find_lacking
from ompbind.planning.metrics import Boundary, Measures
from ompbind.planning.plan import Plan
from ompbind.planning.request import MemoryMode
from ompbind.planning.strategies.table import STRATEGIES
from ompbind.record import Record


class Reason(Record):
    """One choice: what it is about, and why it was made so."""

    about: str
    text: str


def make_reasons(plan: Plan, measures: Measures) -> tuple[Reason, ...]:
    """Give the reason for every choice of a plan, in the order in which they were made."""
    return tuple(
        Reason(about=about, text=text)
        for about, tell in _CHOICES.items()
        for text in [" ".join(tell(plan, measures))]
        if text
    )


def _cpus(plan: Plan, measures: Measures) -> Iterator[str]:
    machine, request = plan.machine, plan.request
    limits = (
        "; the others are outside its affinity mask or cgroup" if machine.allowed != machine.online else ""
    )
    yield f"{len(machine.allowed)} of {len(machine.online)} CPUs may be used here{limits}."
    if plan.avoided & machine.allowed:
        yield f"{named('CPU', plan.avoided & machine.allowed)} left to other runs."
    for name, cpus in machine.exclusion_reasons:
        left = cpus & plan.idle & machine.excluded_by_default
        if left and not (request.mask and request.mask.parts):
            verb, them = ("is", "it") if len(left) == 1 else ("are", "them")
            yield f"{named('CPU', left)} {verb} {name}, and left to those who name {them}."
    if request.mask is not None and request.mask.parts:
        yield f"The mask names which to use: {mask_text(request.mask)}."
    if request.core_kind != "all":
        yield f"Of these, {request.core_kind} cores only, as asked."


def _threads_of_cores(plan: Plan, measures: Measures) -> Iterator[str]:
    cpus = plan.used
    cores = touched(plan.machine.at(Level.CORE), cpus)
    there = max((len(core.cpus & plan.machine.online) for core in cores), default=1)
    if there == 1:
        yield "Cores have one hardware thread each."
        return
    used = max(len(core.cpus & cpus) for core in cores)
    if plan.request.is_unbound:
        yield "All hardware threads: the mask is 'none'."
        return
    yield f"Of the {there} hardware threads of a core, {used} {'is' if used == 1 else 'are'} used:"
    if plan.request.smt != "auto":
        yield f"--smt {plan.request.smt} says so."
    elif plan.request.mask is not None and plan.request.mask.parts:
        yield "those that the mask names."
    elif measures.shared:
        yield "there are more ranks than cores."
    elif used > 1:
        yield "further ones gain little where a core has eight or more (--smt all uses them all)."
    else:
        yield "threads that compute gain little from sharing a core (--smt all uses them all)."
    if plan.request.sibling == "last":
        yield "Those with the highest numbers come first, as asked."


def _number(plan: Plan, measures: Measures) -> Iterator[str]:
    request = plan.request
    ranks = count(len(plan.placements), "rank")
    strategy = STRATEGIES[request.strategy]
    if request.ranks is not None:
        yield f"{ranks}, as asked." if len(plan.placements) > 1 else "One rank."
    elif request.names_each_rank:
        yield f"{ranks}: one for each part of the mask."
    elif request.is_unbound:
        yield f"{ranks}: all ranks would get the same."
    elif strategy.sized and request.threads:
        yield f"{ranks}: as many as there is room for."
    else:
        yield f"{ranks}: {strategy.label}."


def _strategy(plan: Plan, measures: Measures) -> Iterator[str]:
    request = plan.request
    strategy = STRATEGIES[request.strategy]
    if request.names_each_rank:
        yield "The mask has a part for every rank, so that none has to divide the CPUs."
    elif request.is_unbound:
        yield "The mask is 'none': every rank may use everything, together with all other ranks."
    elif measures.shared and not strategy.overlapping:
        yield "More ranks than cores: each has one, alone or with others."
    else:
        yield f"{request.strategy}: every rank gets {strategy.summary}."


def _shares(plan: Plan, measures: Measures) -> Iterator[str]:
    core_of = index_by_cpu(plan.machine.at(Level.CORE))
    sizes = Counter(len({core_of[cpu] for cpu in one.cpus}) for one in plan.placements)
    yield (
        "; ".join(
            f"{count(times, 'rank')} of {count(size, 'core')}"
            for size, times in sorted(sizes.items(), reverse=True)
        )
        + "."
    )
    if measures.shared:
        yield f"{count(measures.shared, 'core')} of several ranks each."
    if measures.idle:
        yield f"{count(measures.idle, 'core')} idle."


def _borders(plan: Plan, measures: Measures) -> Iterator[str]:
    told = [border for border in measures.borders if border.crossing or _holds(plan, measures, border)]
    by_crossing: dict[int, list[str]] = {}
    for border in told:
        by_crossing.setdefault(border.crossing, []).append(border.level.label)
    plain = not (plan.request.names_each_rank or plan.request.is_unbound or plan.request.reserve)
    nested = not any("cut through" in remark for remark in plan.machine.remarks)
    forced = plain and nested and STRATEGIES[plan.request.strategy].fewest_crossings
    for crossing, labels in sorted(by_crossing.items(), reverse=True):
        who = f"{crossing} of {count(len(plan.placements), 'rank')}" if crossing else "No rank"
        verb = "crosses" if crossing < 2 else "cross"
        why = ": equal shares of the cores leave no other way" if crossing and forced else ""
        whom = "it" if crossing < 2 else "them"
        yield f"{who} {verb} borders of {_listed(labels)} that could hold {whom}{why}."


def _listed(labels: Sequence[str]) -> str:
    """Write the names of levels as alternatives: "NUMA nodes, packages or L3s"."""
    *most, last = [f"{label}s" for label in labels]
    return f"{', '.join(most)} or {last}" if most else last


def _holds(plan: Plan, measures: Measures, border: Boundary) -> bool:
    """Tell whether a domain of a level has as many cores as the smallest rank."""
    firsts = CpuSet(core.cpus.first for core in touched(plan.machine.at(Level.CORE), plan.machine.allowed))
    return any(len(one.cpus & firsts) >= measures.smallest for one in plan.machine.at(border.level))


def _reserve(plan: Plan, measures: Measures) -> Iterator[str]:
    if plan.request.reserve:
        yield f"{count(plan.request.reserve, 'core')} of each rank's share kept free, its last, as asked."
    elif plan.request.reserve_total:
        free = count(plan.request.reserve_total, "core")
        yield f"{free} kept free, from the end of each node or part in turn."


def _threads(plan: Plan, measures: Measures) -> Iterator[str]:
    quota = plan.machine.quota
    if plan.request.threads is not None:
        yield f"{count(plan.request.threads, 'thread')} for each rank, as asked."
    elif any(one.threads < len(one.cpus) for one in plan.placements):
        yield f"Fewer than CPUs, since the cgroup allows {quota:g} CPUs of time: more would be throttled."
    else:
        yield "One for each CPU of a rank."


def _binding(plan: Plan, measures: Measures) -> Iterator[str]:
    if not plan.machine.bindable:
        yield "This system cannot confine a process to CPUs: ranks get thread counts only."
        return
    yield "Each process may run on the CPUs of its rank alone."
    yield _MODES[plan.request.bind if any(one.places for one in plan.placements) else Bind.NONE]


_MODES = {
    Bind.RANK: "Its OpenMP threads float on all of them: nothing that it starts is ever narrowed.",
    Bind.CORE: "Its OpenMP threads keep to a core each, but for the first, whose mask others inherit.",
    Bind.THREAD: "Its OpenMP threads keep to a CPU each, but for the first, whose mask others inherit.",
    Bind.EXACT: "Its OpenMP threads keep to a CPU each, the first too, and what that starts inherits it.",
    Bind.NONE: "Its OpenMP threads are not bound any further.",
}


_POLICIES = {
    MemoryMode.BIND: "It comes from the NUMA nodes of a rank's own CPUs and from no others, as asked.",
    MemoryMode.PREFERRED: "It comes from the NUMA nodes of a rank's own CPUs while these have some, as asked.",
    MemoryMode.INTERLEAVE: "It comes from the NUMA nodes of a rank's own CPUs in turn, as asked.",
}


def _memory(plan: Plan, measures: Measures) -> Iterator[str]:
    if plan.request.memory is not MemoryMode.LOCAL:
        yield _POLICIES[plan.request.memory]
    if lacking := find_lacking(plan.placements):
        yield f"{named('NUMA node', lacking)} without memory: that of the nearest node is used."
    elif len(plan.machine.nodes) > 1 and all(one.nodes for one in plan.placements):
        yield "Every rank's memory is nearest on the NUMA nodes of its own CPUs."


_CHOICES: dict[str, Callable[[Plan, Measures], Iterator[str]]] = {
    "CPUs": _cpus,
    "hardware threads": _threads_of_cores,
    "ranks": _number,
    "strategy": _strategy,
    "shares": _shares,
    "borders": _borders,
    "reserve": _reserve,
    "threads": _threads,
    "binding": _binding,
    "memory": _memory,
}
"""Every choice and what tells its reason, in the order in which they are made."""
