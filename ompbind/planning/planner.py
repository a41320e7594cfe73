"""`make_plan`: machine × request × other live runs → plan, a pure function."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import chain

from ompbind.cpuset import EMPTY, CpuSet, union
from ompbind.errors import OmpbindError, PlanError, RequestError
from ompbind.machine.model import Level, Machine
from ompbind.openmp.binding import Bind, Binding, BindingSyntax, make_places
from ompbind.planning.allocation import place_ranks, use_whole_service_cores
from ompbind.planning.draft import Draft, apply_job_cpus
from ompbind.planning.memory import LIMITED, UNSET, add_policies, map_local_memory, map_remote_memory
from ompbind.planning.notes import explain
from ompbind.planning.other_runs import LiveRun, find_avoided, find_shared_cpus, render_occupancy
from ompbind.planning.plan import Note, Placement, Plan
from ompbind.planning.request import Request, Requests, Sharing, list_requests
from ompbind.planning.runtimes import CONFLICT, check_runtimes, choose_bind, choose_binding
from ompbind.planning.strategies import STRATEGIES, list_others_that_take


def make_plan(machine: Machine, request: Requests, occupied: Sequence[LiveRun] = ()) -> Plan:
    """Return the plan for a request: which rank gets which CPUs. Equal arguments give equal plans.

    Several requests are the groups of one run; each needs a name. `occupied` are the other live runs. Raises
    MaskError if the mask does not fit the machine, PlanError if the request does not, and RequestError if the
    strategy is unknown; the error names the group.

    >>> from ompbind import Request, make_plan, read_machine
    >>> plan = make_plan(read_machine("synthetic:pack:2 core:4 pu:2"), Request(ranks=2))
    >>> plan.placements[1].cpus, plan.placements[1].threads
    ((8, 10, 12, 14), 4)
    """
    if any(each.sharing is Sharing.PREFER_FREE for each in list_requests(request)):
        from ompbind.planning.free_cores import plan_on_free_cores  # noqa: PLC0415 - door: --cores

        return plan_on_free_cores(machine, request, occupied, make_plan)
    if not isinstance(request, Request) or request.group:
        return _make_plan_of_groups(machine, list_requests(request), occupied)
    _check_request(request)
    with _naming_variables(request):
        draft = _make_draft(machine, request, occupied)
        [plan] = _add_details([draft])
        return _add_notes(_add_runs(plan, draft), draft.notes)


def _make_plan_of_groups(machine: Machine, requests: Sequence[Request], occupied: Sequence[LiveRun]) -> Plan:
    from ompbind.planning import groups  # noqa: PLC0415 - door: groups

    requests = groups.prepare(machine, requests)
    chosen: dict[int, Draft] = {}
    parts: Mapping[int, CpuSet] = {}
    for index in groups.order(requests):
        request = requests[index]
        taken = groups.find_taken(machine, request, chosen.values())
        if groups.takes_rest(request):
            avoided = find_avoided(machine, request, occupied)
            parts = parts or groups.divide_rest(machine, requests, avoided, taken)
            taken = machine.allowed - parts[index]
        with groups.naming(request), _naming_variables(request):
            _check_request(request)
            chosen[index] = _make_draft(machine, request, occupied, taken)
    drafts = [chosen[index] for index in range(len(requests))]
    plans = _add_details(drafts)
    run = plans[0].replace(placements=(), reserved=union(plan.reserved for plan in plans)).join(plans)
    run = _add_runs(run, drafts[0])
    made = []
    for plan, draft in zip(plans, drafts, strict=True):
        with groups.naming(plan.request):
            idle = run.idle & machine.table.whole(plan.used)
            made.append(_add_notes(plan.replace(idle=idle), draft.notes))
    return _add_notes(run.join(made))


def find_possible_cpus(machine: Machine, request: Requests) -> CpuSet:
    """Return the CPUs of all cores that a request may get if no other run is live; raises as `make_plan`."""
    found = EMPTY
    for each in list_requests(request):
        found |= CpuSet(Draft(machine, use_whole_service_cores(apply_job_cpus(machine, each))).cpus)
    return machine.table.whole(found)


@contextmanager
def _naming_variables(request: Request) -> Iterator[None]:
    """Add to the hint of an error which variables of --compat have been read."""
    try:
        yield
    except OmpbindError as error:
        if request.compat and request.compat.read:
            error.hint += f" ({'; '.join(request.compat.read)}; unset a variable to ignore it)"
        raise


def _check_request(request: Request) -> None:
    if request.strategy not in STRATEGIES:
        raise RequestError(f"unknown strategy {request.strategy!r}", hint=f"use {', '.join(STRATEGIES)}")
    what = f"--strategy {request.strategy}"
    if request.cores and (usable := list_others_that_take("cores", request.strategy)):
        raise PlanError(f"--cores has no effect with {what}", hint=f"use {usable}")
    usable = list_others_that_take("devices", request.strategy)
    if request.devices and request.needs_strategy and usable:
        use = f"use {usable}"
        if request.compat:
            what += f", which --compat {request.compat.framework} selects,"
            use = f"add --strategy {usable.partition(',')[0]}"
        hint = f"{use}; ranks get CPUs near their devices"
        raise PlanError(f"{what} and --devices contradict each other", hint=hint)


def _make_draft(machine: Machine, request: Request, runs: Sequence[LiveRun], taken: CpuSet = EMPTY) -> Draft:
    """Choose CPUs for ranks, none that are `taken`; errors because of other runs say what they use."""
    request = apply_job_cpus(machine, request)
    check_runtimes(request)
    in_cores = use_whole_service_cores(request)
    avoided = find_avoided(machine, request, runs)
    try:
        draft = place_ranks(Draft(machine, in_cores, runs, avoided=avoided, taken=taken))
    except PlanError as error:
        if not (occupied := avoided & machine.allowed):
            raise
        try:
            place_ranks(Draft(machine, in_cores, taken=taken))
        except PlanError as same:
            if same.message == error.message:
                raise error from None
        text = f"{error.message}; {render_occupancy(machine, runs, occupied)}"
        raise PlanError(text, hint=error.hint) from None
    draft.request = request.replace(bind=choose_bind(machine, request, draft.placements))
    return draft


def _add_details(drafts: Sequence[Draft]) -> list[Plan]:
    plans, counts = [], _count_threads(drafts)
    shared = _find_oversubscribed(drafts, counts)
    for draft, threads in zip(drafts, counts, strict=True):
        machine, request, binding = draft.machine, draft.request, choose_binding(draft.request)
        placements = tuple(_complete_placements(draft, threads, binding, shared))
        reserved = union(placement.reserved for placement in placements) & machine.allowed
        plan = Plan(
            machine=machine, request=request, placements=placements, reserved=reserved, binding=binding
        )
        plans.append(plan)
    return plans


def _count_threads(drafts: Sequence[Draft]) -> list[list[int]]:
    """Return the number of threads of each rank of each draft; all of them divide the CPU quota."""
    machine, request = drafts[0].machine, drafts[0].request
    job_cpus = request.job_cpus.count if request.job_cpus else None
    limits = [limit for limit in (machine.quota, job_cpus) if limit is not None]
    counts = [[draft.request.threads or len(rank.cpus) for rank in draft.placements] for draft in drafts]
    is_open = [index for index, draft in enumerate(drafts) if draft.request.threads is None]
    cpus = [number for index in is_open for number in counts[index]]
    if limits and cpus:
        given = sum(map(sum, counts)) - sum(cpus)
        share = len(cpus) / (len(cpus) + request.outside_ranks)  # ranks outside the plan have their part
        limited = iter(make_thread_counts(cpus, max(0, min(limits) - given) * share))
        for index in is_open:
            counts[index] = [next(limited) for _ in counts[index]]
    return counts


def _find_oversubscribed(drafts: Sequence[Draft], counts: Sequence[Sequence[int]]) -> CpuSet:
    """Return the CPUs that ranks share with each other, if these ranks have more threads than CPUs."""
    make_set = cache(CpuSet)  # all ranks may have the same CPUs
    ranks, used, shared = [make_set(rank.cpus) for each in drafts for rank in each.placements], EMPTY, EMPTY
    for cpus in ranks:
        used, shared = used | cpus, shared | (used & cpus)
    sharing = [pair for pair in zip(ranks, chain(*counts), strict=True) if not shared.isdisjoint(pair[0])]
    return shared if sum(own for _, own in sharing) > len(union(cpus for cpus, _ in sharing)) else EMPTY


def _complete_placements(
    draft: Draft, counts: Sequence[int], binding: Binding, shared: CpuSet
) -> Iterator[Placement]:
    """Yield the placements with their NUMA nodes, places and threads, computed once for equal CPUs."""
    machine, request = draft.machine, draft.request
    core_of, node_of = machine.table.core_of, machine.table.number_of(Level.NODE)
    domains = machine.at(Level.NODE)
    local, remote = map_local_memory(machine), map_remote_memory(machine)
    binds = machine.bindable and binding.syntax is not BindingSyntax.UNBOUND
    bind = request.effective_bind if binds else Bind.NONE
    shared = EMPTY if request.sets_waiting else shared
    previous: Placement | None = None
    for placement, threads in zip(draft.placements, counts, strict=True):
        if previous is not None and previous.cpus is placement.cpus and previous.threads == threads:
            previous = previous.replace(rank=placement.rank, devices=placement.devices)
            yield previous
            continue
        indices = sorted({node_of[cpu] for cpu in placement.cpus if cpu in node_of})
        nodes = tuple(number for index in indices if (number := domains[index].os_id) is not None)
        near, far = ({by for node in nodes for by in memory.get(node, ())} for memory in (local, remote))
        cores: dict[int, list[int]] = {}
        for cpu in placement.cpus:
            cores.setdefault(core_of[cpu], []).append(cpu)
        in_cores = [*map(CpuSet, cores.values())]
        places, text = make_places(placement.cpus, in_cores, bind, threads, placement.service_cpus)
        previous = placement.replace(
            places=places,
            places_text=text,
            threads=threads,
            processes=request.processes_per_rank,
            nodes=nodes,
            memory_nodes=tuple(sorted(near or far)),
            waits_passively=threads // request.processes_per_rank > 1
            and not shared.isdisjoint(placement.compute),
        )
        yield previous


# Threads beyond the CPU quota of the cgroup make no program faster: the kernel stops the threads of all ranks
# together until the next period begins. So the quota is divided in proportion to the CPUs of the ranks, and
# each share is rounded down: ranks of one job wait for the slowest, so equal ranks have equal numbers of
# threads. A rank whose share is less than one CPU has one thread; the other ranks divide the rest.


def make_thread_counts(cpus: Sequence[int], quota: float) -> list[int]:
    """Return the number of threads of each rank, for ranks with these numbers of CPUs (1 or more).

    `quota` is the CPU time that the ranks have together, in CPUs. The sum is at most the quota, or one thread
    per rank: three ranks with 4 CPUs each and a quota of 8.5 have 2 each.
    """
    rest, left = quota, sum(cpus)  # what ranks with a share of one CPU or more divide, and their CPUs
    for number in sorted(cpus):
        if rest * number >= left:
            break
        rest, left = max(0.0, rest - 1), left - number
    return [max(1, min(number, int(rest * number / left))) if left else 1 for number in cpus]


def _add_runs(plan: Plan, draft: Draft) -> Plan:
    """Return a plan with the other live runs, and its idle CPUs; raises PlanError because of --exclusive."""
    machine, runs, avoided = draft.machine, draft.runs, draft.avoided
    shared = find_shared_cpus(machine, runs, plan.used | plan.reserved)
    if shared and plan.request.sharing is Sharing.EXCLUSIVE:
        raise PlanError(
            f"not exclusive: {render_occupancy(machine, runs, shared)}",
            hint="wait for these runs ('run --wait'), name other CPUs (--mask), or use free cores (--avoid)",
        )
    idle = machine.allowed - avoided - plan.reserved - plan.used
    return plan.replace(occupied=runs, avoided=avoided, idle=idle)


def _add_notes(plan: Plan, notes: Iterable[Note] = ()) -> Plan:
    """Return a plan with its memory policies and notes; raises PlanError because of --strict."""
    plan = plan if plan.groups else add_policies(plan)  # its groups have them already
    plan = plan.replace(notes=(*notes, *explain(plan)))
    failures = [note.text for note in plan.notes if note.code in REFUSED_IF_STRICT]
    if plan.request.strict and failures:
        raise PlanError("; ".join(failures), hint="without --strict this is a warning")
    return plan


REFUSED_IF_STRICT = (
    "job-cpus", "not-bindable", "quota-ranks", "places-too-long", "service-workers", "preload", "wrapper",
    "device-far",
    CONFLICT, UNSET, LIMITED,
)  # fmt: skip
"""The codes of notes that say that ranks cannot have what was requested: their binding, or a CPU each."""
