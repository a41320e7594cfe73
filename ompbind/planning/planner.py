"""`make_plan`: machine × request × other live runs → plan, a pure function."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import cycle, islice

from ompbind.cpuset import EMPTY, CpuSet, union
from ompbind.errors import OmpbindError, PlanError, RequestError
from ompbind.machine.model import Level, Machine, index_by_cpu
from ompbind.openmp.binding import Bind, BindingSyntax
from ompbind.openmp.places import Cores, make_places, make_service_places, render_places
from ompbind.planning.allocation import make_placements, use_whole_service_cores
from ompbind.planning.conflicts import check_exclusive, make_available
from ompbind.planning.cpu_pool import CpuPool, make_cpu_pool
from ompbind.planning.memory import add_policies, map_local_memory, map_remote_memory
from ompbind.planning.notes import explain
from ompbind.planning.occupancy import AvailableCpus, LiveRun, whole_cores
from ompbind.planning.occupancy_text import render_occupancy
from ompbind.planning.plan import Placement, Plan
from ompbind.planning.request import MemoryMode, Request
from ompbind.planning.runtimes import check_runtimes, choose_syntax, find_certain_runtimes
from ompbind.planning.saved_placements import make_saved_plan
from ompbind.planning.strategies.strategies import (
    STRATEGIES,
    list_others_that_take_cores,
    list_others_that_take_devices,
)
from ompbind.planning.strictness import check_strict
from ompbind.planning.thread_counts import make_thread_counts


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
        return make_saved_plan(machine, request, occupied)
    if request.strategy not in STRATEGIES:
        raise RequestError(f"unknown strategy {request.strategy!r}", hint=f"use {', '.join(STRATEGIES)}")
    if request.cores and (usable := list_others_that_take_cores(request.strategy)):
        message = f"--cores has no effect with --strategy {request.strategy}"
        raise PlanError(message, hint=f"use {usable}")
    _check_takes_devices(request)
    try:
        return _make_plan(machine, request, occupied)
    except OmpbindError as error:
        if request.compat and request.compat.read:
            error.hint += f" ({'; '.join(request.compat.read)}; unset a variable to ignore it)"
        raise


def _check_takes_devices(request: Request) -> None:
    """Raise PlanError if ranks get devices, but the strategy cannot divide the cores near these."""
    usable = list_others_that_take_devices(request.strategy)
    if not (request.devices and request.needs_strategy and usable):
        return
    strategy, hint = f"--strategy {request.strategy}", f"use {usable}"
    if request.compat:
        strategy += f", which --compat {request.compat.framework} selects,"
        hint = f"add --strategy {usable.partition(',')[0]}"
    message = f"{strategy} and --devices contradict each other"
    raise PlanError(message, hint=f"{hint}; ranks get CPUs near their devices")


def _make_plan(machine: Machine, request: Request, occupied: Sequence[LiveRun]) -> Plan:
    original, request = request, _restate(request)
    if len(runtimes := find_certain_runtimes(request)) > 1:
        check_runtimes(runtimes)
    available = AvailableCpus(machine=machine)
    if occupied:
        available = make_available(machine, request, occupied)
    pool, placements = _allocate(available, request)
    draft = Plan(
        machine=machine,
        request=request,
        placements=tuple(_add_details(machine, request, placements)),
        reserved=union(placement.reserved for placement in placements),
        occupied=available.runs,
        avoided=available.avoided,
    )
    draft = draft.replace(idle=available.free - draft.reserved - draft.used)
    if occupied:
        check_exclusive(draft)
    if request.memory is not MemoryMode.LOCAL:
        draft = add_policies(draft)
    plan = draft.replace(request=original, notes=pool.notes + tuple(explain(draft)))
    if request.strict:
        check_strict(plan)
    return plan


def find_possible_cpus(machine: Machine, request: Request) -> CpuSet:
    """Return the CPUs of all cores that a request may get if no other run is live; raises as `make_plan`."""
    if request.plan is not None:
        return whole_cores(machine, request.plan.used)
    pool = make_cpu_pool(AvailableCpus(machine=machine), _restate(request))
    return whole_cores(machine, CpuSet(pool.cpus))


def _restate(request: Request) -> Request:
    """Return a request in other words: whole service cores where ranks request a number of cores.

    With the mask "none", ranks may use all CPUs and are not bound.
    """
    if request.is_unbound:
        return request.replace(mask=None, strategy="all", smt="all", bind=Bind.NONE)
    requests_cores = request.cores or (request.threads and STRATEGIES[request.strategy].sized)
    if not (request.has_service_cpus and requests_cores) or request.names_each_rank:
        return request
    return use_whole_service_cores(request)


def _allocate(available: AvailableCpus, request: Request) -> tuple[CpuPool, list[Placement]]:
    """Allocate the CPUs to ranks; if this fails because of other runs, the error says which CPUs they use."""
    try:
        pool = make_cpu_pool(available, request)
        return pool, make_placements(pool)
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
    previous: Placement | None = None
    for placement, threads in zip(placements, _count_threads(machine, request, placements), strict=True):
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
        bind = request.bind if binds else Bind.NONE
        previous = placement.replace(
            places=_make_places(placement, [*map(CpuSet, cores.values())], bind, threads),
            threads=threads,
            nodes=nodes,
            memory_nodes=_find_memory_nodes(nodes, local) or _find_memory_nodes(nodes, remote),
        )
        yield previous


def _count_threads(machine: Machine, request: Request, placements: Sequence[Placement]) -> list[int]:
    """Return the number of threads of each rank; ranks outside the plan have their part of the CPU quota."""
    if request.threads is not None:
        return [request.threads] * len(placements)
    cpus = [len(placement.cpus) for placement in placements]
    if machine.quota is None:
        return cpus
    return make_thread_counts(cpus, machine.quota * len(cpus) / (len(cpus) + request.outside_ranks))


def _find_memory_nodes(nodes: Sequence[int], memory_of: Mapping[int, Iterable[int]]) -> tuple[int, ...]:
    """Return the nodes with the memory of some nodes, in ascending order; `memory_of` has them by node."""
    return tuple(sorted({near for node in nodes for near in memory_of.get(node, ())}))


def _make_places(placement: Placement, cores: Cores, bind: Bind, threads: int) -> tuple[CpuSet, ...]:
    """Return the places of a rank; none if their text is too long, or just one with Bind.RANK."""
    if placement.service_cpus:
        cpu_of_threads = tuple(islice(cycle(placement.cpus), threads))
        ways = [make_service_places(cpu_of_threads, cores, bind, placement.service_cpus)]
        ways += [(placement.cpuset,)] if bind is Bind.RANK else []
    else:
        ways = [make_places(placement.cpus, cores, bind)]
    return next((places for places in ways if render_places(places) is not None), ())
