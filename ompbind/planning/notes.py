"""The notes of a plan: what it decides that the request does not say, and what cannot be bound.

Each `_explain_` function yields the notes on one subject; `_SUBJECTS` lists the functions in output order.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import combinations

from ompbind.cpuset import EMPTY, CpuSet, count, join_words, named, union
from ompbind.machine.model import Level
from ompbind.masks.resolution import UsableCpus, resolve_mask
from ompbind.openmp.binding import Bind, BindingSyntax
from ompbind.planning.allocation import divide_service
from ompbind.planning.memory import explain_memory
from ompbind.planning.other_runs import find_shared_cpus, render_occupancy
from ompbind.planning.placing import Cores
from ompbind.planning.plan import Note, Plan, find_unbalanced
from ompbind.planning.request import Sharing
from ompbind.planning.runtimes import choose_syntax, explain_runtime
from ompbind.planning.strategies import STRATEGIES
from ompbind.planning.thread_counts import explain_thread_counts
from ompbind.planning.wrapper_notes import explain_wrappers


def explain(plan: Plan) -> list[Note]:
    """Return all notes of a plan; of a run with groups, the notes that are not on one of the groups."""
    subjects = _SUBJECTS
    if plan.groups:
        subjects = _RUN_SUBJECTS
    elif plan.request.group:
        subjects = tuple(subject for subject in _SUBJECTS if subject not in _RUN_SUBJECTS)
    return [note for explain_subject in subjects for note in explain_subject(plan)]


def _has(numbers: CpuSet) -> str:
    return "has" if len(numbers) == 1 else "have"


def _explain_compat(plan: Plan) -> Iterator[Note]:
    """Explain how variables of other programs were read (--compat)."""
    compat, request = plan.request.compat, plan.request
    if compat is None:
        return
    for text in (*compat.read, *compat.others):
        yield Note(code="compat", text=text)
    for text in compat.warnings:
        yield Note(code="compat", text=text, warning=True)
    if compat.divided and request.effective_strategy in ("numa", "nodes"):
        table = plan.machine.table
        cores = Cores(table=table, rows=tuple(table.rows(plan.compute)), distances={})
        domains = STRATEGIES[request.strategy].auto_ranks(cores, None)
        if domains < len(plan.placements):  # several ranks share a domain
            yield Note(code="compat", text=compat.divided)


def _explain_machine(plan: Plan) -> Iterator[Note]:
    for remark in plan.machine.remarks:
        yield Note(code="machine", text=remark, warning=True)
    if not plan.machine.bindable:
        text = "this system cannot confine a process to CPUs: only thread counts are set"
        yield Note(code="not-bindable", text=text, warning=True)


def _explain_numbers(plan: Plan) -> Iterator[Note]:
    """Explain which NUMA nodes a mask means where its node numbers are not OS numbers."""
    nodes = plan.machine.at(Level.NODE, plan.machine.allowed)
    named_numbers = {
        number
        for part in (plan.request.mask.parts if plan.request.mask else ())
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


def _explain_cores(plan: Plan) -> Iterator[Note]:
    """Explain --cores for one rank to users of `taskset -c`, which has numbers of CPUs there."""
    cores, mask, ranks = plan.request.cores, plan.request.mask, len(plan.placements)
    if cores is None or cores not in plan.machine.online or (mask and mask.parts) or plan.request.group:
        return
    if ranks + plan.request.outside_ranks == 1:
        text = f"-c {cores} is {count(cores, 'core')} per rank, not CPU {cores} (-m {cores} is CPU {cores})"
        yield Note(code="cores", text=text)


def _explain_unfilled(plan: Plan) -> Iterator[Note]:
    if plan.request.unfilled:
        yield Note(code="unfilled", text=plan.request.unfilled, warning=True)


def _explain_idle_siblings(plan: Plan) -> Iterator[Note]:
    """List idle hardware threads on cores of ranks; CPUs that are excluded by default have other notes."""
    request, excluded_by_default = plan.request, plan.machine.excluded_by_default
    idle_siblings = plan.machine.table.whole(plan.used) & plan.idle - excluded_by_default
    if idle_siblings and request.smt != "all" and request.mask is None:
        text = f"idle hardware threads on cores of ranks: {named('CPU', idle_siblings)} (--smt all uses them)"
        yield Note(code="smt", text=text)


def _explain_idle_cores(plan: Plan) -> Iterator[Note]:
    """List idle cores; cores whose CPUs are excluded by default have other notes."""
    cores, used = plan.machine.at(Level.CORE), plan.used
    idle = plan.idle - plan.machine.excluded_by_default
    if plan.has_devices and not plan.groups:
        from ompbind.planning.devices.notes import find_far_idle_cpus  # noqa: PLC0415 - door: devices

        idle -= find_far_idle_cpus(plan)  # these have a note of their own
    if idle_cores := [core for core in cores if core.cpus & idle and core.cpus.isdisjoint(used)]:
        cpus = union(core.cpus for core in idle_cores) & idle
        yield Note(code="idle", text=f"{count(len(idle_cores), 'core')} idle ({named('CPU', cpus)})")


def _explain_isolated(plan: Plan) -> Iterator[Note]:
    """List CPUs that are not used because they are isolated, or used although they share isolated cores.

    These are CPUs of the mask that are isolated, or share a core with isolated CPUs, and are not used; and
    CPUs of ranks that share a core with isolated CPUs without a rank.
    """
    machine, used = plan.machine, plan.used
    if not machine.exclusion_reasons:
        return
    siblings = machine.isolated_siblings
    if excluded := plan.idle & machine.excluded_by_default:
        excluded &= union(map(_find_requested, plan.parts))
        if isolated := excluded - machine.table.whole(used) - siblings:
            names = [name for name, cpus in machine.exclusion_reasons if not cpus.isdisjoint(isolated)]
            text = f"not used because {' or '.join(names)}: {named('CPU', isolated)} ({_advise(isolated)})"
            yield Note(code="set-apart", text=text)
        if shared := excluded & siblings:
            verb = "it shares" if len(shared) == 1 else "they share"
            text = f"{named('CPU', shared)} not used: {verb} a core with isolated CPUs ({_advise(shared)})"
            yield Note(code="isolated-siblings", text=text)
    isolated = union(cpus for _, cpus in machine.exclusion_reasons) & machine.online - used
    if sharing := siblings & used & machine.table.whole(isolated):
        shared = machine.table.whole(sharing) & isolated
        text = f"{named('CPU', sharing)} {'shares' if len(sharing) == 1 else 'share'} a core with isolated "
        text += f"{named('CPU', shared)}: programs on {named('CPU', shared)} run slower"
        yield Note(code="isolated-siblings", text=text)


def _explain_unbalanced(plan: Plan) -> Iterator[Note]:
    """Explain what isolated CPUs mean for the threads of ranks that have several CPUs."""
    if not (found := find_unbalanced(plan.machine, plan.placements)):
        return
    cpus = plan.machine.isolated & union(placement.cpuset for placement in found)
    is_isolated, them = ("is isolated", "it") if len(cpus) == 1 else ("are isolated", "or between them")
    text = f"{named('CPU', cpus)} {is_isolated}: the kernel moves no threads to {them}, so "
    unbound = CpuSet(
        placement.rank
        for placement in found
        if len(placement.places) < max(2, min(placement.threads, len(placement.cpus)))
        or any(len(place) > 1 for place in placement.places[1:])
    )
    if not unbound:
        text += f"OpenMP threads are bound to one CPU each (--bind {plan.request.bind}); "
        besides = ", not on its service CPUs" if any(placement.service_cpus for placement in found) else ""
        text += f"other threads and child processes stay on the first CPU of their rank{besides}"
        yield Note(code="isolated", text=text)
        return
    is_alone = plan.request.processes_per_rank > 1 or all(placement.threads == 1 for placement in found)
    remedy = "start one rank per CPU" if is_alone else "--bind thread binds each OpenMP thread to one CPU"
    text += f"threads of {named('rank', unbound)} share CPUs while others stay idle"
    yield Note(code="isolated", text=f"{text} ({remedy})", warning=True)


def _find_requested(plan: Plan) -> CpuSet:
    """Return the CPUs that the mask or the nodes of a request contain, isolated ones too; without, all."""
    request, machine = plan.request, plan.machine.replace(isolated=EMPTY, nohz_full=EMPTY)
    mask = request.mask if request.mask and request.mask.parts else request.nodes
    if mask is None:
        return machine.allowed
    parts, _ = resolve_mask(mask, UsableCpus(machine=machine, free=machine.allowed), allow_partial=True)
    return CpuSet(cpu for part in parts for cpu in part)


def _advise(cpus: CpuSet) -> str:
    it = "it" if len(cpus) == 1 else "them"
    return f"name {it} by number in --mask to use {it}"


def _explain_kinds(plan: Plan) -> Iterator[Note]:
    """Explain kinds of cores that the machine does not report, and ranks on cores of different speed."""
    used, requested = plan.used, plan.request.core_kind
    kinds = [kind for kind in plan.machine.kinds if not kind.cpus.isdisjoint(used)]
    unreported = "this machine does not report kinds of cores: "
    if kinds and (facts := kinds[0].inferred_from) and (requested != "all" or len(kinds) > 1):
        yield Note(code="core-kind", text=f"{unreported}they are inferred from {facts}")
    elif requested != "all" and not plan.machine.kinds:
        yield Note(code="core-kind", text=f"{unreported}--core-kind {requested} excludes no core")
    if len(kinds) < 2:
        return
    mixed = CpuSet(
        placement.rank
        for placement in plan.placements
        if sum(not kind.cpus.isdisjoint(placement.compute) for kind in kinds) > 1
    )
    verb = "mixes" if len(mixed) == 1 else "mix"
    subject = f"{named('rank', mixed)} {verb}" if mixed else "ranks differ in"
    cpus_by_kind = "; ".join(f"{kind.name}: {named('CPU', kind.cpus & used)}" for kind in kinds)
    remedy = " (--core-kind selects one kind)" if len({kind.name for kind in kinds}) > 1 else ""
    text = f"{subject} kinds of cores, and slower cores finish later{remedy}: {cpus_by_kind}"
    yield Note(code="mixed-kinds", text=text)


def _explain_nodes(plan: Plan) -> Iterator[Note]:
    if crossing := CpuSet(placement.rank for placement in plan.placements if len(placement.nodes) > 1):
        text = f"{named('rank', crossing)} {_has(crossing)} CPUs on more than one NUMA node"
        if plan.request.ranks == 1:
            text += " (-n auto -s nodes starts a rank on each node, -m node:0 uses only one)"
        yield Note(code="crosses-nodes", text=text)


_QUOTA_RANKS = "quota-ranks"


def _explain_quota(plan: Plan) -> Iterator[Note]:
    """Warn of more ranks or threads than CPUs in the CPU quota, and of threads that it limits."""
    throttling = find_throttling(plan)
    limited = CpuSet(
        placement.threads
        for part in plan.parts
        for placement in part.placements
        if part.request.threads is None and placement.threads < len(placement.cpus)
    )
    has_too_many_ranks = any(note.code == _QUOTA_RANKS for note in throttling)
    if plan.machine.quota is not None and limited and not has_too_many_ranks:
        text = f"the CPU quota of the cgroup is {plan.machine.quota:g}: threads per rank limited to {limited}"
        yield Note(code="quota", text=text, warning=True)
    yield from throttling


def find_throttling(plan: Plan) -> list[Note]:
    """Return the notes on more ranks and on more threads than CPUs in the CPU quota."""
    quota, placements, outside = plan.machine.quota, plan.placements, plan.request.outside_ranks
    notes: list[Note] = []
    if quota is None:
        return notes
    ranks = len(placements) + outside
    threads = sum(placement.threads for placement in placements) + outside * placements[0].threads
    is_quota = f"the CPU quota of the cgroup is {quota:g}"
    if ranks > max(quota, 1):
        text = f"{is_quota}, which is too little for {count(ranks, 'rank')}: they will be throttled"
        text += " (start fewer ranks, or raise the quota)"
        notes.append(Note(code=_QUOTA_RANKS, text=text, warning=True))
    if threads > max(quota, ranks):
        text = f"{is_quota}: {threads} threads will be throttled (lower --threads)"
        notes.append(Note(code="quota", text=text, warning=True))
    return notes


def _explain_job_cpus(plan: Plan) -> Iterator[Note]:
    """Yield the note on a number of CPUs of the job that limits the plan."""
    job = plan.request.job_cpus
    if job is None:
        return
    text = f"this job may use the {job}, but is not bound"
    if plan.request.is_unbound:
        threads = count(sum(placement.threads for placement in plan.placements), "thread")
        text += f" to any: its ranks have {threads} and may run on {named('CPU', plan.machine.allowed)}"
        text += " (-m names CPUs, --avoid takes CPUs of no other run)"
        text += f"; {join_words(job.unused)} cannot be fulfilled" if job.unused else ""
    else:
        text += " to these: other jobs may run on the CPUs of its ranks"
    yield Note(code="job-cpus", text=text, warning=True)


_THREADS = "OMP_NUM_THREADS"
_DIGITS = 10  # of a number of threads, at most


def _explain_threads(plan: Plan) -> Iterator[Note]:
    """Warn of more threads than CPUs in a rank, also by a variable that the user sets or keeps."""
    text = dict(plan.request.user_variables).get(_THREADS, "").partition(",")[0].strip()
    own = int(text) if text.isdecimal() and len(text) < _DIGITS else 0
    threads = max(placement.threads for placement in plan.placements)
    if ranks := CpuSet(
        placement.rank for placement in plan.placements if max(placement.threads, own) > len(placement.cpus)
    ):
        text = f"{named('rank', ranks)} {_has(ranks)} more threads than CPUs: they will wait for each other"
        remedy = f"{_THREADS} of --env or --keep-env" if own > threads else "--threads"
        yield Note(code="oversubscribed", text=f"{text} (lower {remedy})", warning=True)


def _explain_sharing(plan: Plan) -> Iterator[Note]:
    """List ranks that share cores or CPUs, unless the strategy gives the same cores to all ranks."""
    core_of = plan.machine.table.core_of
    owners: dict[int, set[int]] = {}
    if not STRATEGIES[plan.request.effective_strategy].overlapping:
        for placement in plan.placements:
            for cpu in (*placement.cpus, *placement.service_cpus):
                owners.setdefault(core_of[cpu], set()).add(placement.rank)
    if sharing := CpuSet(rank for ranks in owners.values() if len(ranks) > 1 for rank in ranks):
        yield Note(code="shared-cores", text=f"{named('rank', sharing)} share cores with other ranks")
    given = sum(len(placement.cpus) + len(placement.service_cpus) for placement in plan.placements)
    if given != len(plan.used):
        yield Note(code="shared", text="ranks share CPUs, as requested")


def _explain_sharing_groups(plan: Plan) -> Iterator[Note]:
    """List groups that have CPUs of other groups too, which only --share and the mask `none` allow."""
    for group, other in combinations([part for part in plan.groups if not part.request.is_unbound], 2):
        if shared := group.used & other.used:
            text = f"groups {group.request.group} and {other.request.group} share {named('CPU', shared)}"
            yield Note(code="shared", text=f"{text}, as requested")


def _explain_other_runs(plan: Plan) -> Iterator[Note]:
    """Explain which CPUs of the plan other runs use too, or which CPUs it avoids because of them."""
    sharing = plan.request.sharing
    if plan.machine.source != "live" and not plan.occupied:
        if sharing in (Sharing.AVOID, Sharing.EXCLUSIVE):
            text = f"--{sharing} has no effect: live runs are known only on the live machine"
            yield Note(code="avoided", text=text)
        return
    shared = find_shared_cpus(plan.machine, plan.occupied, plan.used | plan.reserved)
    if shared and sharing is Sharing.WARN:
        text = f"{render_occupancy(plan.machine, plan.occupied, shared)}: threads will compete for CPUs"
        text += " (--avoid uses other CPUs, --share hides this warning)"
        yield Note(code="overlaps-run", text=text, warning=True)
    elif avoided := plan.avoided & plan.machine.allowed:
        yield Note(code="avoided", text=f"not used: {render_occupancy(plan.machine, plan.occupied, avoided)}")


def _explain_service(plan: Plan) -> Iterator[Note]:
    """List ranks without their optional service CPUs.

    Explain which ranks have service CPUs far away, or workers that may use their service CPUs.
    """
    ranks, machine, request = len(plan.placements), plan.machine, plan.request
    wanted = [*zip(plan.placements, divide_service(request, ranks), strict=True)]
    fewer = CpuSet(placement.rank for placement, number in wanted if len(placement.service_cpus) < number)
    if fewer and request.service_optional:
        text = f"{named('rank', fewer)} {_has(fewer)} too few CPUs for service CPUs"
        yield Note(code="service-missing", text=f"{text}: other threads use the CPUs that compute")
    if not (with_service := [placement for placement in plan.placements if placement.service_cpus]):
        return
    nodes = machine.table.number_of(Level.NODE)
    remote = CpuSet(
        placement.rank
        for placement in with_service
        if not {nodes.get(cpu) for cpu in placement.service_cpus}
        <= {nodes.get(cpu) for cpu in placement.cpus}
    )
    if remote:
        text = f"{named('rank', remote)} {_has(remote)} service CPUs on other NUMA nodes"
        yield Note(code="service-remote", text=f"{text} than the CPUs that compute")
    yield from _explain_service_workers(plan)


def _explain_service_workers(plan: Plan) -> Iterator[Note]:
    """Explain that OpenMP workers may use service CPUs."""
    unbound = CpuSet(
        placement.rank
        for placement in plan.placements
        if placement.service_cpus
        and placement.threads > 1
        and not any(place == placement.compute for place in placement.places)
    )
    bind = plan.request.effective_bind
    if unbound and bind is Bind.RANK and plan.machine.bindable:
        reason = "OMP_PLACES is too long for some runtimes"
        if choose_syntax(plan.request) is BindingSyntax.UNBOUND:
            reason = "with places, forked children crash in the OpenMP runtime of the command"
        text = f"OpenMP workers of {named('rank', unbound)} may use service CPUs: {reason}"
        yield Note(code="service-workers", text=text, warning=True)
    elif bind is Bind.NONE:
        text = "OpenMP workers may use service CPUs too, because --bind none does not bind them"
        yield Note(code="service-unbound", text=text)


def _explain_places(plan: Plan) -> Iterator[Note]:
    without = CpuSet(placement.rank for placement in plan.placements if not placement.places)
    if without and choose_syntax(plan.request) is not BindingSyntax.UNBOUND and plan.machine.bindable:
        text = f"OMP_PLACES of {named('rank', without)} is too long for some runtimes"
        text += ": threads will not be bound (--bind rank is shorter)"
        yield Note(code="places-too-long", text=text, warning=True)


def _load_device_notes(plan: Plan) -> Iterable[Note]:
    if not (plan.request.devices or plan.request.near):
        return ()
    from ompbind.planning.devices.notes import explain_devices  # noqa: PLC0415 - door: devices

    return explain_devices(plan)


def _explain_device_variables(plan: Plan) -> Iterable[Note]:
    if not plan.has_devices:
        return ()
    from ompbind.planning.devices.notes import explain_variables  # noqa: PLC0415 - door: devices

    return explain_variables(plan)


_SUBJECTS: tuple[Callable[[Plan], Iterable[Note]], ...] = (
    _explain_compat,
    _explain_machine,
    _explain_numbers,
    _explain_cores,
    _explain_idle_siblings,
    _explain_idle_cores,
    _explain_isolated,
    _explain_unbalanced,
    _explain_kinds,
    _explain_nodes,
    _load_device_notes,
    explain_memory,
    _explain_quota,
    _explain_job_cpus,
    _explain_threads,
    explain_thread_counts,
    _explain_sharing,
    _explain_other_runs,
    _explain_service,
    _explain_places,
    explain_runtime,
    _explain_device_variables,
    explain_wrappers,
    _explain_unfilled,
)
"""What notes are about: a function for each subject, in the order of output."""

_RUN_SUBJECTS: tuple[Callable[[Plan], Iterable[Note]], ...] = (
    _explain_machine,
    _explain_idle_cores,
    _explain_isolated,
    _explain_quota,
    _explain_sharing_groups,
    _explain_other_runs,
)
"""The subjects on which a run with groups has one note, and not a note for each group."""
