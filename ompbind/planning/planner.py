"""`make_plan`: machine × request × other live runs → plan, a pure function."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ompbind.cpuset import EMPTY, CpuSet, union
from ompbind.errors import OmpbindError, PlanError, RequestError
from ompbind.machine.model import Level, Machine, index_by_cpu
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
    whole_cores,
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
from ompbind.planning.strategies.strategies import (
    STRATEGIES,
    list_others_that_take_cores,
    list_others_that_take_devices,
)


def make_plan(machine: Machine, request: Request, occupied: Sequence[LiveRun] = ()) -> Plan:
    """Return the plan for a request: which rank gets which CPUs. Equal arguments give equal plans.

    `occupied` are the other live runs. Raises MaskError if the mask does not fit the machine, PlanError if
    the request does not, and RequestError if the strategy is unknown.

    >>> from ompbind import Request, make_plan, read_machine
    >>> plan = make_plan(read_machine("synthetic:pack:2 core:4 pu:2"), Request(ranks=2))
    >>> plan.placements[1].cpus, plan.placements[1].threads
    ((8, 10, 12, 14), 4)
    """
    if request.plan is not None:
        from ompbind.planning.saved_plan import place_saved_ranks  # noqa: PLC0415 - door: --plan

        request, placements = place_saved_ranks(machine, request)
        return _finish_plan(AvailableCpus(machine=machine, runs=tuple(occupied)), request, placements)
    _check_request(request)
    request = apply_job_cpus(machine, request)
    try:
        check_runtimes(find_certain_runtimes(request))
        available = make_available(machine, request, occupied)
        placements, notes = _allocate(available, _normalise(request))
        request = request.replace(bind=choose_bind(machine, request, placements))
        placements = list(_add_details(machine, request, placements))
        return _finish_plan(available, request, placements, notes)
    except OmpbindError as error:
        if request.compat and request.compat.read:
            error.hint += f" ({'; '.join(request.compat.read)}; unset a variable to ignore it)"
        raise


def find_possible_cpus(machine: Machine, request: Request) -> CpuSet:
    """Return the CPUs of all cores that a request may get if no other run is live; raises as `make_plan`."""
    if request.plan is not None:
        return whole_cores(machine, request.plan.used)
    pool = make_cpu_pool(AvailableCpus(machine=machine), _normalise(apply_job_cpus(machine, request)))
    return whole_cores(machine, CpuSet(pool.cpus))


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


def _allocate(available: AvailableCpus, request: Request) -> tuple[list[Placement], tuple[Note, ...]]:
    """Allocate the CPUs to ranks; return their placements, and the notes on the mask.

    If this fails because of other runs, the error says which CPUs they use.
    """
    try:
        pool = make_cpu_pool(available, request)
        return make_placements(pool), pool.notes
    except PlanError as error:
        avoided = available.avoided & available.machine.allowed
        if not avoided or _find_error_without_runs(available, request) == error.message:
            raise
        raise PlanError(f"{error.message}; {render_occupancy(available, avoided)}", hint=error.hint) from None


def _find_error_without_runs(available: AvailableCpus, request: Request) -> str:
    """Return the message of the error that occurs even if no CPU is avoided, "" if there is none."""
    try:
        make_placements(make_cpu_pool(available.replace(avoided=EMPTY), request))
    except PlanError as error:
        return error.message
    return ""


def _add_details(machine: Machine, request: Request, placements: Sequence[Placement]) -> Iterator[Placement]:
    """Yield the placements with their NUMA nodes, places and threads, computed once for equal CPUs."""
    core_of, node_of = index_by_cpu(machine.at(Level.CORE)), index_by_cpu(machine.at(Level.NODE))
    domains = machine.at(Level.NODE)
    local, remote = map_local_memory(machine), map_remote_memory(machine)
    binds = machine.bindable and choose_syntax(request) is not BindingSyntax.UNBOUND
    bind = request.effective_bind if binds else Bind.NONE
    counts = [request.threads or len(placement.cpus) for placement in placements]
    job_cpus = request.job_cpus.count if request.job_cpus else None
    limits = [limit for limit in (machine.quota, job_cpus) if limit is not None]
    if request.threads is None and limits:  # ranks outside the plan have their part
        ranks = len(counts) + request.outside_ranks
        counts = make_thread_counts(counts, min(limits) * len(counts) / ranks)
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


def _finish_plan(
    available: AvailableCpus, request: Request, placements: Sequence[Placement], notes: tuple[Note, ...] = ()
) -> Plan:
    """Return the plan of placements, with what is idle, memory policies and notes.

    Raises PlanError if other runs use its CPUs with --exclusive, or if it is not what --strict requires.
    """
    draft = Plan(
        machine=available.machine,
        request=request,
        placements=tuple(placements),
        reserved=union(placement.reserved for placement in placements) & available.machine.allowed,
        occupied=available.runs,
        avoided=available.avoided,
    )
    draft = draft.replace(idle=available.free - draft.reserved - draft.used)
    shared = find_shared_cpus(available, draft.used | draft.reserved)
    if shared and request.sharing is Sharing.EXCLUSIVE:
        raise PlanError(
            f"not exclusive: {render_occupancy(available, shared)}",
            hint="wait for these runs ('run --wait'), name other CPUs (--mask), or use free cores (--avoid)",
        )
    draft = add_policies(draft)
    plan = draft.replace(notes=notes + tuple(explain(draft)))
    failures = [note.text for note in plan.notes if note.code in REFUSED_IF_STRICT]
    if request.strict and failures:
        raise PlanError("; ".join(failures), hint="without --strict this is a warning")
    return plan


REFUSED_IF_STRICT = (
    "job-cpus", "not-bindable", "quota-ranks", "places-too-long", "service-workers", "preload", "wrapper",
    "device-far",
    CONFLICT, UNSET, LIMITED, NARROWED,
)  # fmt: skip
"""The codes of notes that say that ranks cannot have what was requested: their binding, or a CPU each."""
