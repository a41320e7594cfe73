"""The notes of a plan: what it decides that the request does not say, and what cannot be bound.

`_SUBJECTS` is the table of all notes in output order: a code, whether it is a warning, and the function that
returns the texts. A subject without texts has no note. Texts do not depend on how many CPUs or ranks they
name.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

from ompbind.cpuset import EMPTY, CpuSet, count, join_words, named, union
from ompbind.machine.model import CORE_KIND_NAMES, Machine
from ompbind.masks.resolution import UsableCpus, resolve_mask
from ompbind.openmp.binding import Bind, BindingSyntax
from ompbind.openmp.runtimes import PASSIVE, TRY_PASSIVE
from ompbind.planning.allocation import divide_service
from ompbind.planning.draft import uses_only_core
from ompbind.planning.memory import explain_memory
from ompbind.planning.other_runs import find_shared_cpus, render_occupancy
from ompbind.planning.placing import Cores
from ompbind.planning.plan import Note, Plan, find_unbalanced, name_ranks
from ompbind.planning.request import Sharing
from ompbind.planning.runtimes import counts_by_mask, explain_runtime
from ompbind.planning.strategies import STRATEGIES
from ompbind.planning.wrapper_notes import explain_wrappers
from ompbind.record import Record
from ompbind.text import whole_number


class Subject(Record):
    """What notes are about: `texts` returns their texts, or notes that have codes of their own.

    A run with groups has one note `of_run`, and not a note for each group.
    """

    texts: Callable[[Plan], Iterable[str | Note]]
    code: str = ""
    warning: bool = False
    of_run: bool = False


def explain(plan: Plan) -> list[Note]:
    """Return all notes of a plan; of a run with groups, the notes that are not on one of the groups."""
    has_groups = bool(plan.groups or plan.request.group)
    return [
        text if isinstance(text, Note) else Note(code=subject.code, text=text, warning=subject.warning)
        for subject in _SUBJECTS
        if not has_groups or subject.of_run == bool(plan.groups)
        for text in subject.texts(plan)
    ]


def _list_compat(plan: Plan) -> Iterator[str]:
    if (compat := plan.request.compat) is None:
        return
    yield from (*compat.read, *compat.others)
    if compat.divided and plan.request.effective_strategy in ("numa", "nodes"):
        table = plan.machine.table
        cores = Cores(table=table, rows=tuple(table.rows(plan.compute)), distances={})
        if STRATEGIES[plan.request.strategy].auto_ranks(cores, None) < len(plan.placements):
            yield compat.divided  # several ranks share a domain


# CPUs that are excluded by default have a note of their own: `_list_excluded`.


def _list_idle_siblings(plan: Plan) -> Iterator[str | Note]:
    request = plan.request
    idle = plan.machine.table.whole(plan.used) & plan.idle - plan.machine.excluded_by_default
    is_default = not (request.cores or request.threads or request.mask)
    if idle and is_default and len(plan.compute) < request.requested_cpus:
        text = f"--cpus-per-task of Slurm counts hardware threads, but ranks leave {named('CPU', idle)} of"
        text += " their cores idle (--smt all uses all; with 'srun --hint=nomultithread' Slurm counts cores)"
        yield Note(code="smt", text=text, warning=True)
    elif idle and request.smt != "all" and request.mask is None:
        yield f"idle hardware threads on cores of ranks: {named('CPU', idle)} (--smt all uses them)"
    elif len(plan.compute) > 1 and uses_only_core(plan.machine, request):
        yield "all hardware threads are used, as only one core is allowed (--smt 1 uses one)"


def _list_idle_cores(plan: Plan) -> Iterator[str]:
    idle = plan.idle - plan.machine.excluded_by_default
    if plan.has_devices and not plan.groups:
        from ompbind.planning.devices.notes import find_far_idle_cpus  # noqa: PLC0415 - door: devices

        idle -= find_far_idle_cpus(plan)  # these have a note of their own
    cores = [core for core in plan.machine.table.cores if core & idle and core.isdisjoint(plan.used)]
    if cores:
        idle &= union(cores)
        who, remedy = count(len(cores), "core"), ""
        if idle <= plan.machine.cpus_of_kind("efficiency"):
            who = count(len(cores), "efficiency core")
            remedy = f"; --core-kind {'efficiency' if plan.request.core_kind == 'all' else 'all'} uses them"
        yield f"{who} idle ({named('CPU', idle)}{remedy})"


def _list_excluded(plan: Plan) -> Iterator[str]:
    """Yield the CPUs of the mask that are not used because they, or CPUs of their core, are isolated."""
    machine = plan.machine
    if not machine.exclusion_reasons:
        return
    excluded = plan.idle & machine.excluded_by_default & union(map(_find_requested, plan.parts))
    excluded -= machine.table.whole(plan.used) - machine.isolated_siblings
    if excluded:
        reasons = [name for name, cpus in machine.exclusion_reasons if not cpus.isdisjoint(excluded)]
        reason = " or ".join(reasons) or "in cores with isolated CPUs"
        yield f"not used because {reason}: {named('CPU', excluded)} (-m uses CPUs that it names by number)"


def _find_requested(plan: Plan) -> CpuSet:
    """Return the CPUs that the mask or the nodes of a request contain, isolated ones too; without, all."""
    request, machine = plan.request, plan.machine.replace(isolated=EMPTY, nohz_full=EMPTY)
    mask = request.mask if request.mask and request.mask.parts else request.nodes
    if mask is None:
        return machine.allowed
    parts, _ = resolve_mask(mask, UsableCpus(machine=machine, free=machine.allowed), allow_partial=True)
    return CpuSet(cpu for part in parts for cpu in part)


def _list_unbalanced(plan: Plan) -> Iterator[Note]:
    if not (found := find_unbalanced(plan.machine, plan.placements)):
        return
    cpus = named("CPU", plan.machine.isolated & union(placement.cpuset for placement in found))
    text = f"isolated {cpus}: the kernel moves no threads there, so "
    unbound = [
        placement
        for placement in found
        if len(placement.places) < max(2, min(placement.threads, len(placement.cpus)))
        or any(len(place) > 1 for place in placement.places[1:])
    ]
    if unbound:
        is_alone = plan.request.processes_per_rank > 1 or all(placement.threads == 1 for placement in found)
        remedy = "start one rank per CPU" if is_alone else "--bind thread binds each OpenMP thread to one CPU"
        text += f"threads of {name_ranks(unbound)} share CPUs while others stay idle ({remedy})"
    else:
        text += f"OpenMP threads are bound to one CPU each (--bind {plan.request.bind}); other threads and"
        text += " child processes stay on the first CPU of their rank"
        if any(placement.service_cpus for placement in found):
            text += ", not on its service CPUs"
    yield Note(code="isolated", text=text, warning=bool(unbound))


_UNREPORTED = "this machine does not report kinds of cores"
_EQUAL: Mapping[str, str] = {
    "performance": _UNREPORTED, "cache": "all cores have the same share of L3 cache, as far as it is known",
    "fast": "all cores are equally fast, as far as it is known",
}  # fmt: skip


def _list_kinds(plan: Plan) -> Iterator[Note]:
    requested, used = plan.request.core_kind, plan.used
    kinds = [kind for kind in plan.machine.kinds if not kind.cpus.isdisjoint(used)]
    if kinds and (facts := kinds[0].inferred_from) and (requested != "all" or len(kinds) > 1):
        yield Note(code="core-kind", text=f"{_UNREPORTED}: they are inferred from {facts}")
    if requested != "all" and plan.machine.cpus_of_kind(requested) == plan.machine.online:
        is_kind = plan.machine.kinds and requested in CORE_KIND_NAMES
        why = f"all cores are {requested} cores" if is_kind else _EQUAL[requested]
        yield Note(code="core-kind", text=f"{why}: --core-kind {requested} excludes no core")
    if len(kinds) < 2:
        return
    mixed = name_ranks(
        placement
        for placement in plan.placements
        if sum(not kind.cpus.isdisjoint(placement.compute) for kind in kinds) > 1
    )
    cpus_by_kind = "; ".join(f"{kind.name}: {named('CPU', kind.cpus & used)}" for kind in kinds)
    remedy = " (--core-kind performance avoids them)" if len({kind.name for kind in kinds}) > 1 else ""
    who = f" in {mixed}" if mixed else ", ranks differ"
    text = f"several kinds of cores{who}; slower cores finish later{remedy}: {cpus_by_kind}"
    yield Note(code="mixed-kinds", text=text)


def _list_crossing(plan: Plan) -> Iterator[str]:
    if ranks := name_ranks(placement for placement in plan.placements if len(placement.nodes) > 1):
        alone = " (-n auto -s nodes starts a rank on each node, -m can name a single node)"
        yield f"on more than one NUMA node: {ranks}{alone if plan.request.ranks == 1 else ''}"


def _list_quota(plan: Plan) -> Iterator[Note]:
    throttling = find_throttling(plan)
    machine, ranks = plan.machine, len(plan.placements) + plan.request.outside_ranks
    if (quota := machine.quota) is None:
        return
    fewer = [
        (part.request.threads is None, placement.threads)
        for part in plan.parts
        for placement in part.placements
        if placement.threads < len(placement.cpus)
    ]
    limited = CpuSet(threads for by_quota, threads in fewer if by_quota)
    cpus = sum(len(placement.cpus) for placement in plan.placements) * ranks / len(plan.placements)
    if fewer and cpus > quota and not any(note.code == "quota-ranks" for note in throttling):
        requests = [part.request for part in plan.parts]
        takes_cores = all(each.needs_strategy and STRATEGIES[each.strategy].takes_cores for each in requests)
        remedy = render_fewer_cpus(machine, quota / ranks) if takes_cores else "a smaller mask"
        text = f"the CPU quota of the cgroup is {quota:g}: "
        text += f"threads per rank limited to {limited}; " if limited else ""
        text += f"pools that count CPUs have more threads ({remedy} gives fewer CPUs)"
        yield Note(code="quota", text=text, warning=bool(limited))
    if ranks == 1 > quota:  # not in `find_throttling`: bench compares what one rank can do
        text = f"the CPU quota of the cgroup is {quota:g}, which is too little for 1 rank"
        yield Note(code="quota-ranks", text=f"{text}: it will be throttled (raise the quota)", warning=True)
    yield from throttling


def _list_first_cpus(plan: Plan) -> Iterator[str]:
    """Yield that containers with a CPU quota use the same CPUs, if ompbind chooses a part of all CPUs."""
    machine, bound = plan.machine, list[CpuSet]()
    requests = [part.request for part in plan.parts]
    chooses = all(request.mask is None and request.sharing is Sharing.WARN for request in requests)
    if machine.quota is None or machine.allowed != machine.online or not chooses:
        return
    for rank in plan.placements:  # fewer threads than CPUs may have the first places of the rank
        own = union(place for place in rank.places[: rank.threads] if place != rank.cpuset)
        bound.append((own or rank.cpuset) | rank.service_cpus)
    used = union(bound)
    other = machine.allowed - machine.table.whole(used) - plan.reserved - machine.excluded_by_default
    if other:
        text = f"threads run on {named('CPU', used)}; without a cpuset, ranks in other containers"
        yield f"{text} with a quota begin at the same CPU ({OWN_CPUS})"


OWN_CPUS = "--cpuset-cpus of docker, -m with other CPUs, or --avoid with a shared OMPBIND_RUNTIME_DIR"
"""What keeps ranks of several containers apart."""


def render_fewer_cpus(machine: Machine, cpus: float) -> str:
    """Return the options that give a rank at most so many CPUs: as many cores, with one CPU each."""
    smt = "--smt 1 " if len(machine.table.cores) < len(machine.online) else ""
    return f"{smt}-c {max(1, int(cpus))}"


def find_throttling(plan: Plan) -> list[Note]:
    """Return the notes on more ranks and on more threads than CPUs in the CPU quota."""
    quota, placements, outside = plan.machine.quota, plan.placements, plan.request.outside_ranks
    if quota is None:
        return []
    ranks = len(placements) + outside
    threads = sum(placement.threads for placement in placements) + outside * placements[0].threads
    is_quota = f"the CPU quota of the cgroup is {quota:g}"
    notes: list[Note] = []
    if ranks > max(quota, 1):
        text = f"{is_quota}, which is too little for {count(ranks, 'rank')}: they will be throttled"
        text += " (start fewer ranks, or raise the quota)"
        notes.append(Note(code="quota-ranks", text=text, warning=True))
    if threads > max(quota, ranks):
        text = f"{is_quota}: {threads} threads will be throttled (lower --threads)"
        notes.append(Note(code="quota", text=text, warning=True))
    return notes


def _list_task_limit(plan: Plan) -> Iterator[str]:
    limit, outside, placements = plan.machine.task_limit, plan.request.outside_ranks, plan.placements
    threads = sum(placement.threads for placement in placements) + outside * placements[0].threads
    if limit and threads >= limit.left:  # the supervisor is one more
        ranks = f"{count(len(placements) + outside, 'rank')} with {count(threads, 'thread')}"
        effect = "programs will fail to start threads (raise this limit, or start fewer ranks or threads)"
        yield f"{ranks}: {limit}; {effect}"


def _list_job_cpus(plan: Plan) -> Iterator[str]:
    job = plan.request.job_cpus
    if job is None:
        return
    text = f"this job may use the {job}, but is not bound"
    if not plan.request.is_unbound:
        yield f"{text} to these: other jobs may run on the CPUs of its ranks"
        return
    threads = count(sum(placement.threads for placement in plan.placements), "thread")
    text += f" to any: its ranks have {threads} and may run on {named('CPU', plan.machine.allowed)}"
    text += " (-m names CPUs, --avoid takes CPUs of no other run)"
    yield text + (f"; {join_words(job.unused)} cannot be fulfilled" if job.unused else "")


_THREADS = "OMP_NUM_THREADS"


def _list_oversubscribed(plan: Plan) -> Iterator[str]:
    """Yield ranks with more threads than CPUs, also by a variable of the user, or than processes."""
    text = dict(plan.request.user_variables).get(_THREADS, "").partition(",")[0].strip()
    own = whole_number(text) or 0
    threads = max(placement.threads for placement in plan.placements)
    crowded = (each for each in plan.placements if max(each.threads, own) > len(each.cpus))
    if ranks := name_ranks(crowded, plan.request.local_ranks):
        remedy = f"{_THREADS} of --env or --keep-env" if own > threads else "--threads"
        yield f"more threads than CPUs in {ranks}: they will wait for each other (lower {remedy})"
    processes = plan.request.processes_per_rank
    if ranks := name_ranks(placement for placement in plan.placements if placement.threads < processes):
        text = f"{processes} processes are more than the threads of {ranks}: they will wait for each other"
        yield f"{text} (start fewer processes, or fewer ranks)"


def _list_counts(plan: Plan) -> Iterator[Note]:
    """Yield whether the numbers of threads are set, which libraries of Python also read for workers."""
    request, variables = plan.request, "OMP_NUM_THREADS and similar variables are"
    is_python = request.workload is not None and request.workload.is_python_program
    divides = request.compat is not None or request.processes_per_rank > 1
    if any(counts_by_mask(plan, placement) for placement in plan.placements):
        text = f"{variables} not set: libraries of Python that count the CPUs of their rank use these, and"
        text += " joblib, Dask and Ray divide them among worker processes (-t sets the variables)"
        yield Note(code="threads-by-mask", text=text)
    elif is_python and not divides and any(placement.threads > 1 for placement in plan.placements):
        text = f"{variables} set: each worker of joblib, Dask and Ray will have as many threads"
        yield Note(code="threads-set", text=f"{text} (--processes-per-rank divides the threads)")


def _list_shared_cores(plan: Plan) -> Iterator[str]:
    if STRATEGIES[plan.request.effective_strategy].overlapping:
        return
    core_of = plan.machine.table.core_of
    owners: dict[int, set[int]] = {}
    for placement in plan.placements:
        for cpu in (*placement.cpus, *placement.service_cpus):
            owners.setdefault(core_of[cpu], set()).add(placement.rank)
    if sharing := CpuSet(rank for ranks in owners.values() if len(ranks) > 1 for rank in ranks):
        yield f"{named('rank', sharing)} share cores with each other"


def _list_waiting(plan: Plan) -> Iterator[str]:
    if ranks := name_ranks(placement for placement in plan.placements if placement.waits_passively):
        change = "--env OMP_WAIT_POLICY=active lets them spin"
        yield f"ranks share CPUs: threads of {ranks} wait passively ({'='.join(PASSIVE)}; {change})"


def _list_overlaps(plan: Plan) -> Iterator[str]:
    shared = find_shared_cpus(plan.machine, plan.occupied, plan.used | plan.reserved)
    if shared and plan.request.sharing is Sharing.WARN:
        text = f"{render_occupancy(plan.machine, plan.occupied, shared)}: threads will compete for CPUs"
        free = plan.machine.allowed - find_shared_cpus(plan.machine, plan.occupied, plan.machine.allowed)
        remedy = "--avoid uses other CPUs" if free else "--avoid --wait waits for free CPUs"
        may_spin = any(each.process_threads > 1 for each in plan.placements) and not plan.request.sets_waiting
        yield f"{text} ({remedy}, --share hides this warning{f'; or {TRY_PASSIVE}' if may_spin else ''})"


def _list_avoided(plan: Plan) -> Iterator[str]:
    if plan.machine.source != "live" and not plan.occupied:
        if plan.request.sharing in (Sharing.AVOID, Sharing.EXCLUSIVE):
            yield f"--{plan.request.sharing} has no effect: live runs are known only on the live machine"
    elif avoided := plan.avoided & plan.machine.allowed:
        yield f"not used: {render_occupancy(plan.machine, plan.occupied, avoided)}"


def _list_missing_service(plan: Plan) -> Iterator[str]:
    wanted = zip(plan.placements, divide_service(plan.request, len(plan.placements)), strict=True)
    ranks = name_ranks(placement for placement, number in wanted if len(placement.service_cpus) < number)
    if ranks and plan.request.service_optional:
        yield f"too few CPUs for service CPUs in {ranks}: other threads use the CPUs that compute"


def _list_service_workers(plan: Plan) -> Iterator[str]:
    """Yield ranks whose OpenMP workers may use service CPUs, although they are to be bound."""
    ranks = name_ranks(
        rank
        for rank in plan.placements
        if rank.service_cpus and rank.threads > 1 and rank.compute not in rank.places
    )
    if ranks and plan.request.effective_bind is Bind.RANK and plan.machine.bindable:
        reason = "OMP_PLACES is too long for some runtimes"
        if plan.binding.syntax is BindingSyntax.UNBOUND:
            reason = "with places, forked children crash in the OpenMP runtime of the command"
        yield f"OpenMP workers of {ranks} may use service CPUs: {reason}"


def _list_long_places(plan: Plan) -> Iterator[str]:
    ranks = name_ranks(placement for placement in plan.placements if not placement.places)
    if ranks and plan.binding.syntax is not BindingSyntax.UNBOUND and plan.machine.bindable:
        text = f"OMP_PLACES of {ranks} is too long for some runtimes"
        yield f"{text}: threads will not be bound (--bind rank is shorter)"


def _load_device_notes(plan: Plan) -> Iterable[Note]:
    if not (plan.request.devices or plan.request.near):
        return ()
    from ompbind.planning.devices import notes  # noqa: PLC0415 - door: devices

    return (*notes.explain_devices(plan), *(notes.explain_variables(plan) if plan.has_devices else ()))


IN_POD = "in Kubernetes, a CPU request without a limit gives no CPUs of its own, and is not visible here"
SET_THREADS = "-t N, or OMPBIND_THREADS from the downward API (resourceFieldRef: requests.cpu)"
_UNLIMITED = f"{IN_POD}: ranks use all CPUs of the node ({SET_THREADS}, sets the threads of a rank)"
_NOT_BINDABLE = "this system cannot confine a process to CPUs: only thread counts are set"

_SUBJECTS = (
    Subject(code="compat", texts=_list_compat),
    Subject(code="compat", texts=lambda plan: plan.request.compat.warnings if plan.request.compat else (),
            warning=True),
    Subject(code="machine", texts=lambda plan: plan.machine.remarks, warning=True, of_run=True),
    Subject(code="not-bindable", texts=lambda plan: () if plan.machine.bindable else (_NOT_BINDABLE,),
            warning=True, of_run=True),
    Subject(code="smt", texts=_list_idle_siblings),
    Subject(code="idle", texts=_list_idle_cores, of_run=True),
    Subject(code="set-apart", texts=_list_excluded, of_run=True),
    Subject(texts=_list_unbalanced),
    Subject(texts=_list_kinds),
    Subject(code="crosses-nodes", texts=_list_crossing),
    Subject(texts=_load_device_notes),
    Subject(texts=explain_memory),
    Subject(texts=_list_quota, of_run=True),
    Subject(code="quota-cpus", texts=_list_first_cpus, of_run=True),
    Subject(code="pod", texts=lambda plan: [_UNLIMITED] * plan.request.in_unlimited_pod, of_run=True),
    Subject(code="task-limit", texts=_list_task_limit, warning=True, of_run=True),
    Subject(code="job-cpus", texts=_list_job_cpus, warning=True),
    Subject(code="oversubscribed", texts=_list_oversubscribed, warning=True),
    Subject(texts=_list_counts),
    Subject(code="shared-cores", texts=_list_shared_cores),
    Subject(code="waiting", texts=_list_waiting),
    Subject(code="overlaps-run", texts=_list_overlaps, warning=True, of_run=True),
    Subject(code="avoided", texts=_list_avoided, of_run=True),
    Subject(code="service-missing", texts=_list_missing_service),
    Subject(code="service-workers", texts=_list_service_workers, warning=True),
    Subject(code="places-too-long", texts=_list_long_places, warning=True),
    Subject(texts=explain_runtime),
    Subject(texts=explain_wrappers),
    Subject(code="unfilled", texts=lambda plan: filter(None, (plan.request.unfilled,)), warning=True),
)  # fmt: skip
"""All subjects of notes, in the order of output."""
