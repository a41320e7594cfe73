"""The reasons for a plan: one paragraph for each choice, in the order in which the choices are made.

Notes (`notes`) mention only what a user may not expect; reasons (`plan --explain`) cover every choice.
"""

from collections import Counter
from collections.abc import Callable, Iterator

from ompbind.cpuset import CpuSet, count, join_words, named
from ompbind.machine.model import PARTIALLY_OVERLAP, Level
from ompbind.masks.mask import mask_text
from ompbind.openmp.binding import Bind
from ompbind.planning.devices.notes import give_device_reasons, render_share
from ompbind.planning.memory import (
    find_nodes_without_memory,
    find_remote_cpus,
    measure_remote_memory,
    render_not_allowed,
)
from ompbind.planning.metrics import Metrics
from ompbind.planning.plan import Plan, find_unbalanced
from ompbind.planning.request import MemoryMode
from ompbind.planning.strategies.strategies import STRATEGIES
from ompbind.record import Record


class Reason(Record):
    """The reason for one choice: the subject of the choice, and why it was made."""

    about: str
    text: str


def make_reasons(plan: Plan, metrics: Metrics) -> tuple[Reason, ...]:
    """Return the reason for every choice of a plan, in the order in which the choices were made."""
    choices = _CHOICES
    if plan.request.plan:  # its CPUs were chosen for a request that is not known
        kept = {about: choices[about] for about in ("shares", "borders", "binding", "memory")}
        text = f"CPUs, places and threads are from {plan.request.plan.name}, a plan for an equal machine."
        choices = {"plan": lambda plan, metrics: iter((text,)), **kept}
    return tuple(
        Reason(about=about, text=text)
        for about, explain_choice in choices.items()
        for text in [" ".join(explain_choice(plan, metrics))]
        if text
    )


def _explain_cpus(plan: Plan, metrics: Metrics) -> Iterator[str]:
    machine, request = plan.machine, plan.request
    others = "the affinity mask or the cgroup excludes the others"
    limits = f"; {others}" if machine.allowed != machine.online else ""
    allowed = f"{len(machine.allowed)} of {count(len(machine.online), 'CPU')}"
    yield f"{allowed} {'is' if len(machine.allowed) == 1 else 'are'} allowed{limits}."
    if avoided := plan.avoided & machine.allowed:
        yield f"{_subject('CPU', avoided)} left to other runs."
    for name, cpus in machine.exclusion_reasons:
        excluded = cpus & plan.idle & machine.excluded_by_default
        if excluded and not (request.mask and request.mask.parts):
            them = "it" if len(excluded) == 1 else "them"
            yield f"{_subject('CPU', excluded)} {name} and used only if a mask names {them}."
    siblings = machine.isolated_siblings & machine.excluded_by_default & plan.idle
    if siblings and not (request.mask and request.mask.parts):
        yield f"{_subject('CPU', siblings)} not used because of isolated CPUs in the same cores."
    remote = CpuSet(measure_remote_memory(machine)) & machine.default_cpus
    if remote and remote != machine.default_cpus and not request.names_cpus:
        them = "its" if len(remote) == 1 else "their"
        yield f"{_subject('CPU', remote)} used last: memory of {them} NUMA node is not allowed."
    if request.mask is not None and request.mask.parts:
        yield f"The mask selects {mask_text(request.mask)}."
    if request.core_kind != "all":
        yield f"Only {request.core_kind} cores are used, as requested."


def _explain_hardware_threads(plan: Plan, metrics: Metrics) -> Iterator[str]:
    cpus = plan.compute
    cores = plan.machine.at(Level.CORE, cpus)
    available = max((len(core.cpus & plan.machine.online) for core in cores), default=1)
    if available == 1:
        yield "Each core has one hardware thread."
        return
    used = max(len(core.cpus & cpus) for core in cores)
    if plan.request.is_unbound:
        yield "All hardware threads are used: the mask is 'none'."
        return
    yield f"{used} of {available} hardware threads per core {'is' if used == 1 else 'are'} used:"
    if plan.request.smt != "auto":
        yield f"--smt {plan.request.smt} requests this."
    elif plan.request.mask is not None and plan.request.mask.parts:
        yield "the mask names them."
    elif metrics.shared:
        yield "there are more ranks than cores."
    elif used > 1:
        yield "more gain little on cores with 8 or more hardware threads (--smt all uses all)."
    else:
        yield "compute threads gain little from sharing a core (--smt all uses all)."
    if plan.request.sibling == "last":
        yield "The highest-numbered hardware threads are used first, as requested."


def _explain_number_of_ranks(plan: Plan, metrics: Metrics) -> Iterator[str]:
    request = plan.request
    ranks = count(len(plan.placements), "rank")
    strategy = STRATEGIES[request.strategy]
    if request.ranks is not None:
        yield f"{ranks}, as requested." if len(plan.placements) > 1 else "One rank."
    elif request.names_each_rank:
        yield f"{ranks}: one per part of the mask."
    elif plan.has_devices:
        each = count(request.devices_per_rank or 1, "device")
        yield f"{ranks}: one for each device." if each == "1 device" else f"{ranks}: one for {each} each."
    elif request.is_unbound:
        yield f"{ranks}: all ranks would get the same CPUs."
    elif (strategy.sized and request.threads) or (request.cores and not strategy.level):
        yield f"{ranks}: the most that fit."
    else:
        yield f"{ranks}: {strategy.label}."


def _explain_strategy(plan: Plan, metrics: Metrics) -> Iterator[str]:
    request = plan.request
    strategy = STRATEGIES[request.strategy]
    if request.names_each_rank:
        yield "The mask has one part per rank, so no strategy is needed."
    elif request.is_unbound:
        yield "The mask is 'none': every rank may use all CPUs, together with the other ranks."
    elif metrics.shared and not strategy.overlapping:
        yield "There are more ranks than cores: each rank gets one core, or shares one with other ranks."
    elif plan.has_devices and not request.outside_ranks:
        yield f"{request.strategy}: {render_share(request)}."
    elif request.cores:
        cores = count(request.cores, "core")
        yield f"{request.strategy}: every rank gets {cores}, as requested, {strategy.takes_cores}."
    else:
        yield f"{request.strategy}: every rank gets {strategy.summary}."


def _explain_shares(plan: Plan, metrics: Metrics) -> Iterator[str]:
    core_of = plan.machine.table.core_of
    sizes = Counter(len({core_of[cpu] for cpu in placement.cpus}) for placement in plan.placements)
    groups = []
    for size, times in sorted(sizes.items(), reverse=True):
        groups.append(f"{count(times, 'rank')} with {count(size, 'core')}{' each' if times > 1 else ''}")
    yield f"{'; '.join(groups)}."
    if metrics.shared:
        yield f"Several ranks share {count(metrics.shared, 'core')}."
    if metrics.idle:
        yield f"{count(metrics.idle, 'core')} {'is' if metrics.idle == 1 else 'are'} idle."


def _explain_boundaries(plan: Plan, metrics: Metrics) -> Iterator[str]:
    """Yield a sentence for each number of ranks that are split over domains in which they would fit.

    Levels with equal numbers share a sentence. Levels whose domains are all smaller than a rank are left out.
    """
    by_crossing: dict[int, list[str]] = {}
    cores = plan.machine.at(Level.CORE, plan.machine.allowed)
    firsts = CpuSet(core.cpus.first for core in cores)
    for boundary in metrics.borders:
        largest = max(len(domain.cpus & firsts) for domain in plan.machine.at(boundary.level))
        if boundary.crossing or largest >= metrics.smallest:
            by_crossing.setdefault(boundary.crossing, []).append(f"{boundary.level.label}s")
    taken = not plan.request.cores and (plan.request.reserve or plan.request.has_service)
    by_memory = plan.request.cores and measure_remote_memory(plan.machine)
    others_decide = plan.request.names_each_rank or plan.request.is_unbound or plan.has_devices
    overlap = any(PARTIALLY_OVERLAP in remark for remark in plan.machine.remarks)
    fewest = STRATEGIES[plan.request.strategy].fewest_crossings
    forced = fewest and not (others_decide or taken or by_memory or overlap)
    for crossing, labels in sorted(by_crossing.items(), reverse=True):
        if not crossing:
            yield f"No rank is split over {join_words(labels, 'or')} if it fits in one."
            continue
        verb, they = ("is", "it fits") if crossing == 1 else ("are", "they fit")
        ranks = f"{crossing} of {count(len(plan.placements), 'rank')} {verb}"
        reason = ": equal shares make this necessary" if forced else ""
        yield f"{ranks} split over several {join_words(labels, 'or')}, although {they} in one{reason}."


def _explain_service(plan: Plan, metrics: Metrics) -> Iterator[str]:
    request = plan.request
    if number := request.service_cores:
        of_rank = "of each rank" if request.cores else "of each rank's share"
        yield f"{count(number, 'core')} {of_rank} {'is' if number == 1 else 'are'} for service threads."
    if number := request.service_total + request.service_each * len(plan.placements):
        verb = "is" if number == 1 else "are"
        yield f"{count(number, 'CPU')} of all ranks {verb} for service threads: the highest of each rank."
    is_bound = all(placement.places[1:] or placement.threads == 1 for placement in plan.placements)
    if request.has_service and is_bound:
        yield "No OpenMP worker thread runs there; all other threads of the rank may."


def _explain_reserve(plan: Plan, metrics: Metrics) -> Iterator[str]:
    number, total = plan.request.reserve, plan.request.reserve_total
    if number and plan.request.cores:
        verb = "is" if number == 1 else "are"
        yield f"{count(number, 'core')} more per rank {verb} reserved, as requested."
    elif number:
        cores = "core of each rank's share is" if number == 1 else f"{number} cores of each rank's share are"
        yield f"The last {cores} reserved, as requested."
    elif total:
        yield f"{count(total, 'core')} {'is' if total == 1 else 'are'} reserved, as requested."
        yield "They are the last cores of each NUMA node, or of each part of the mask, round-robin."


def _subject(noun: str, numbers: CpuSet) -> str:
    """Return numbers with their noun and verb: "CPU 0 is", "CPUs 0-3 are"."""
    return f"{named(noun, numbers)} {'is' if len(numbers) == 1 else 'are'}"


def _explain_threads(plan: Plan, metrics: Metrics) -> Iterator[str]:
    quota, job = plan.machine.quota, plan.request.job_cpus
    if plan.request.threads is not None:
        yield f"{count(plan.request.threads, 'thread')} per rank, as requested."
    elif any(placement.threads < len(placement.cpus) for placement in plan.placements):
        ranks = len(plan.placements) + plan.request.outside_ranks
        shared = f", which {ranks} ranks share" if ranks > 1 else ""
        if job and (quota is None or job.count < quota):
            yield f"Fewer threads than CPUs: the job may use {count(job.count, 'CPU')}{shared}."
            return
        yield f"Fewer threads than CPUs: the CPU quota of the cgroup is {quota:g}{shared}."
        yield "More threads would be throttled."
    else:
        yield "One thread per CPU of the rank."


def _explain_binding(plan: Plan, metrics: Metrics) -> Iterator[str]:
    if not plan.machine.bindable:
        yield "This system cannot confine a process to CPUs: only thread counts are set."
        return
    service = " and its service CPUs" if any(placement.service_cpus for placement in plan.placements) else ""
    yield f"The affinity mask of each process has only the CPUs of its rank{service}."
    has_places = any(placement.places for placement in plan.placements)
    if find_unbalanced(plan.machine, plan.placements):
        yield "The kernel moves no threads to or between isolated CPUs."
    if plan.request.bind is Bind.RANK and any(len(placement.places) > 1 for placement in plan.placements):
        yield _SERVICE_THREADS
    else:
        yield _THREADS[plan.request.bind if has_places else Bind.NONE]


_THREADS = {
    Bind.RANK: "All threads and child processes may use all of these CPUs.",
    Bind.CORE: "OpenMP threads are bound to one core each, except the initial thread: "
    "other threads and processes inherit its affinity mask.",
    Bind.THREAD: "OpenMP threads are bound to one CPU each, except the initial thread: "
    "other threads and processes inherit its affinity mask.",
    Bind.EXACT: "OpenMP threads are bound to one CPU each. "
    "Other threads and processes inherit the CPU of the initial thread.",
    Bind.NONE: "OpenMP threads are not bound further.",
}
_SERVICE_THREADS = (
    "OpenMP threads are bound to the CPUs of the rank, except the initial thread: it may use the service "
    "CPUs too. Other threads and processes inherit its affinity mask."
)


_POLICIES = {
    MemoryMode.BIND: "Memory comes only from the NUMA nodes of the rank's CPUs, as requested.",
    MemoryMode.PREFERRED: "Memory comes first from the NUMA nodes of the rank's CPUs, as requested.",
    MemoryMode.INTERLEAVE: "Memory is interleaved over the NUMA nodes of the rank's CPUs, as requested.",
    MemoryMode.WEIGHTED: "Memory is interleaved over the NUMA nodes of the rank's CPUs, by weights.",
}


def _explain_memory(plan: Plan, metrics: Metrics) -> Iterator[str]:
    is_local = plan.request.memory is MemoryMode.LOCAL
    if not is_local:
        yield _POLICIES[plan.request.memory]
    if without := find_nodes_without_memory(plan.machine, plan.placements):
        verb = "has" if len(without) == 1 else "have"
        yield f"{named('NUMA node', without)} {verb} no memory; memory of the nearest node is used."
    if remote := find_remote_cpus(plan):
        text = render_not_allowed(plan.machine, remote)
        yield f"{text[0].upper()}{text[1:]}; allowed memory of other nodes is used."
    elif is_local and not without and len(plan.machine.nodes) > 1 and all(p.nodes for p in plan.placements):
        yield "ompbind sets no policy; by default Linux uses the NUMA nodes of the rank's CPUs."


def _explain_devices(plan: Plan, metrics: Metrics) -> Iterator[str]:
    if plan.request.near:
        yield f"Only CPUs near {' or '.join(plan.request.near)} are used, as requested."
    if plan.request.devices:
        yield from give_device_reasons(plan)


_CHOICES: dict[str, Callable[[Plan, Metrics], Iterator[str]]] = {
    "CPUs": _explain_cpus,
    "hardware threads": _explain_hardware_threads,
    "ranks": _explain_number_of_ranks,
    "devices": _explain_devices,
    "strategy": _explain_strategy,
    "shares": _explain_shares,
    "borders": _explain_boundaries,
    "service": _explain_service,
    "reserve": _explain_reserve,
    "threads": _explain_threads,
    "binding": _explain_binding,
    "memory": _explain_memory,
}
"""What each choice is about, and the function that explains it, in the order in which choices are made."""
