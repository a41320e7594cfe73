"""`make_plan`: machine × request × other live runs → plan, a pure function."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from ompbind.cpuset import EMPTY, CpuSet, union
from ompbind.errors import OmpbindError, PlanError, RequestError
from ompbind.machine.model import Level, Machine
from ompbind.openmp.binding import Bind, BindingSyntax, make_places
from ompbind.planning.allocation import make_placements, use_whole_service_cores
from ompbind.planning.cpu_pool import make_cpu_pool
from ompbind.planning.job_cpus import apply_job_cpus
from ompbind.planning.memory import (
    LIMITED,
    NARROWED,
    UNSET,
    add_policies,
    map_local_memory,
    map_remote_memory,
)
from ompbind.planning.notes import explain
from ompbind.planning.other_runs import (
    AvailableCpus,
    LiveRun,
    find_shared_cpus,
    make_available,
    render_occupancy,
)
from ompbind.planning.plan import Note, Placement, Plan
from ompbind.planning.request import Request, Sharing
from ompbind.planning.runtimes import (
    CONFLICT,
    check_runtimes,
    choose_bind,
    choose_syntax,
    find_certain_runtimes,
)
from ompbind.planning.strategies import (
    STRATEGIES,
    list_others_that_take_cores,
    list_others_that_take_devices,
)
from ompbind.record import Record

Requests: TypeAlias = Request | Sequence[Request]
"""The request of a run, or the requests of its groups."""


def list_requests(request: Requests) -> tuple[Request, ...]:
    """Return the requests of the groups of a run; of a run without groups, its request."""
    return (request,) if isinstance(request, Request) else tuple(request)


class _Allocation(Record):
    """What a request gets of the `available` CPUs; `request` has what that decides, as its binding mode.

    `notes` are the notes on its mask.
    """

    available: AvailableCpus
    request: Request
    placements: tuple[Placement, ...]
    notes: tuple[Note, ...] = ()


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
    if not isinstance(request, Request) or request.group:
        return _make_plan_of_groups(machine, list_requests(request), occupied)
    _check_request(request)
    with _naming_variables(request):
        allocation = _allocate(machine, request, occupied)
        available = allocation.available
        [draft] = _make_drafts([allocation])
        draft = draft.replace(occupied=available.runs, avoided=available.avoided)
        draft = draft.replace(idle=available.free - draft.reserved - draft.used)
        _check_exclusive(available, draft)
        return _add_notes(draft, allocation.notes)


def _make_plan_of_groups(machine: Machine, requests: Sequence[Request], occupied: Sequence[LiveRun]) -> Plan:
    """Return the plan of a run with groups, which choose their CPUs one after the other."""
    from ompbind.planning import groups  # noqa: PLC0415 - door: groups

    requests = groups.prepare(machine, requests)
    available = make_available(machine, requests[0], occupied)
    allocations: dict[int, _Allocation] = {}
    parts: Mapping[int, CpuSet] = {}
    for index in groups.order(requests):
        request = requests[index]
        bound = [done.placements for done in allocations.values() if not done.request.is_unbound]
        taken = groups.find_taken(machine, request, bound)
        if groups.takes_rest(request):
            parts = parts or groups.divide_rest(available.replace(taken=taken), requests)
            taken = machine.allowed - parts[index]
        with groups.naming(request), _naming_variables(request):
            _check_request(request)
            allocations[index] = _allocate(machine, request, occupied, taken)
    in_order = [allocations[index] for index in range(len(requests))]
    drafts = _make_drafts(in_order)
    run = Plan(
        machine=machine,
        request=drafts[0].request,
        placements=(),
        reserved=union(draft.reserved for draft in drafts),
        occupied=available.runs,
        avoided=available.avoided,
    ).join(drafts)
    run = run.replace(idle=available.free - run.reserved - run.used)
    _check_exclusive(available, run)
    made = []
    for draft, allocation in zip(drafts, in_order, strict=True):
        draft = draft.replace(idle=run.idle & machine.table.whole(draft.used))
        with groups.naming(draft.request):
            made.append(_add_notes(draft, allocation.notes))
    return _add_notes(run.join(made))


def find_possible_cpus(machine: Machine, request: Requests) -> CpuSet:
    """Return the CPUs of all cores that a request may get if no other run is live; raises as `make_plan`."""
    found = EMPTY
    for each in list_requests(request):
        pool = make_cpu_pool(AvailableCpus(machine=machine), _normalise(apply_job_cpus(machine, each)))
        found |= CpuSet(pool.cpus)
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
    """Raise an error for an unknown strategy, or if it cannot divide the requested cores or devices."""
    if request.strategy not in STRATEGIES:
        raise RequestError(f"unknown strategy {request.strategy!r}", hint=f"use {', '.join(STRATEGIES)}")
    if request.cores and (usable := list_others_that_take_cores(request.strategy)):
        message = f"--cores has no effect with --strategy {request.strategy}"
        raise PlanError(message, hint=f"use {usable}")
    usable = list_others_that_take_devices(request.strategy)
    if not (request.devices and request.needs_strategy and usable):
        return
    strategy, hint = f"--strategy {request.strategy}", f"use {usable}"
    if request.compat:
        strategy += f", which --compat {request.compat.framework} selects,"
        hint = f"add --strategy {usable.partition(',')[0]}"
    message = f"{strategy} and --devices contradict each other"
    raise PlanError(message, hint=f"{hint}; ranks get CPUs near their devices")


def _normalise(request: Request) -> Request:
    """Return the request for allocation: whole service cores where ranks request a number of cores."""
    requests_cores = request.cores or (request.threads and STRATEGIES[request.effective_strategy].sized)
    if not (request.has_service_cpus and requests_cores) or request.names_each_rank:
        return request
    return use_whole_service_cores(request)


def _allocate(
    machine: Machine, request: Request, occupied: Sequence[LiveRun], taken: CpuSet = EMPTY
) -> _Allocation:
    """Allocate CPUs to the ranks of a request, none that are `taken`.

    If this fails because of other runs, the error says which CPUs they use.
    """
    request = apply_job_cpus(machine, request)
    check_runtimes(find_certain_runtimes(request))
    available = make_available(machine, request, occupied).replace(taken=taken)
    normalised = _normalise(request)
    try:
        pool = make_cpu_pool(available, normalised)
        placements = make_placements(pool)
    except PlanError as error:
        avoided = available.avoided & machine.allowed
        if not avoided or _find_error_without_runs(available, normalised) == error.message:
            raise
        raise PlanError(f"{error.message}; {render_occupancy(available, avoided)}", hint=error.hint) from None
    request = request.replace(bind=choose_bind(machine, request, placements))
    return _Allocation(available=available, request=request, placements=tuple(placements), notes=pool.notes)


def _find_error_without_runs(available: AvailableCpus, request: Request) -> str:
    """Return the message of the error that occurs even if no CPU is avoided, "" if there is none."""
    try:
        make_placements(make_cpu_pool(available.replace(avoided=EMPTY), request))
    except PlanError as error:
        return error.message
    return ""


def _make_drafts(allocations: Sequence[_Allocation]) -> list[Plan]:
    """Return a plan of each allocation, without what depends on the other ranks of the run."""
    drafts = []
    for allocation, threads in zip(allocations, _count_threads(allocations), strict=True):
        machine, request, placements = allocation.available.machine, allocation.request, allocation.placements
        placements = tuple(_add_details(machine, request, placements, threads))
        reserved = union(placement.reserved for placement in placements) & machine.allowed
        drafts.append(Plan(machine=machine, request=request, placements=placements, reserved=reserved))
    return drafts


def _count_threads(allocations: Sequence[_Allocation]) -> list[list[int]]:
    """Return the number of threads of each rank of each allocation; all of them divide the CPU quota."""
    machine, request = allocations[0].available.machine, allocations[0].request
    job_cpus = request.job_cpus.count if request.job_cpus else None
    limits = [limit for limit in (machine.quota, job_cpus) if limit is not None]
    counts = [
        [allocation.request.threads or len(placement.cpus) for placement in allocation.placements]
        for allocation in allocations
    ]
    is_open = [allocation.request.threads is None for allocation in allocations]
    cpus = [number for own, is_one in zip(counts, is_open, strict=True) if is_one for number in own]
    if not (limits and cpus):
        return counts
    given = sum(sum(own) for own, is_one in zip(counts, is_open, strict=True) if not is_one)
    share = len(cpus) / (len(cpus) + request.outside_ranks)  # ranks outside the plan have their part
    limited = iter(make_thread_counts(cpus, max(0, min(limits) - given) * share))
    return [
        [next(limited) for _ in own] if is_one else own for own, is_one in zip(counts, is_open, strict=True)
    ]


def _add_details(
    machine: Machine, request: Request, placements: Sequence[Placement], counts: Sequence[int]
) -> Iterator[Placement]:
    """Yield the placements with their NUMA nodes, places and threads, computed once for equal CPUs."""
    core_of, node_of = machine.table.core_of, machine.table.number_of(Level.NODE)
    domains = machine.at(Level.NODE)
    local, remote = map_local_memory(machine), map_remote_memory(machine)
    binds = machine.bindable and choose_syntax(request) is not BindingSyntax.UNBOUND
    bind = request.effective_bind if binds else Bind.NONE
    previous: Placement | None = None
    for placement, threads in zip(placements, counts, strict=True):
        if previous is not None and previous.cpus is placement.cpus and previous.threads == threads:
            previous = previous.replace(rank=placement.rank, devices=placement.devices)
            yield previous
            continue
        indices = sorted({node_of[cpu] for cpu in placement.cpus if cpu in node_of})
        numbers = (domains[index].os_id for index in indices)
        nodes = tuple(number for number in numbers if number is not None)
        cores: dict[int, list[int]] = {}
        for cpu in placement.cpus:
            cores.setdefault(core_of[cpu], []).append(cpu)
        places, text = make_places(
            placement.cpus, [*map(CpuSet, cores.values())], bind, threads, placement.service_cpus
        )
        previous = placement.replace(
            places=places,
            places_text=text,
            threads=threads,
            processes=request.processes_per_rank,
            nodes=nodes,
            memory_nodes=_find_memory_nodes(nodes, local) or _find_memory_nodes(nodes, remote),
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


def _find_memory_nodes(nodes: Sequence[int], memory_of: Mapping[int, Iterable[int]]) -> tuple[int, ...]:
    """Return the nodes with the memory of some nodes, in ascending order; `memory_of` has them by node."""
    return tuple(sorted({near for node in nodes for near in memory_of.get(node, ())}))


def _check_exclusive(available: AvailableCpus, plan: Plan) -> None:
    """Raise PlanError if other runs use CPUs of a plan with --exclusive."""
    shared = find_shared_cpus(available, plan.used | plan.reserved)
    if shared and plan.request.sharing is Sharing.EXCLUSIVE:
        raise PlanError(
            f"not exclusive: {render_occupancy(available, shared)}",
            hint="wait for these runs ('run --wait'), name other CPUs (--mask), or use free cores (--avoid)",
        )


def _add_notes(draft: Plan, notes: tuple[Note, ...] = ()) -> Plan:
    """Return a plan with its memory policies and notes.

    Raises PlanError if it is not what --strict requires.
    """
    plan = draft if draft.groups else add_policies(draft)  # its groups have them already
    plan = plan.replace(notes=notes + tuple(explain(plan)))
    failures = [note.text for note in plan.notes if note.code in REFUSED_IF_STRICT]
    if plan.request.strict and failures:
        raise PlanError("; ".join(failures), hint="without --strict this is a warning")
    return plan


REFUSED_IF_STRICT = (
    "job-cpus", "not-bindable", "quota-ranks", "places-too-long", "service-workers", "preload", "wrapper",
    "device-far",
    CONFLICT, UNSET, LIMITED, NARROWED,
)  # fmt: skip
"""The codes of notes that say that ranks cannot have what was requested: their binding, or a CPU each."""
