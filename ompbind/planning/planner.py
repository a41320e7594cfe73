"""`make_plan`: machine × request × other live runs → plan, without touching the world."""

from collections.abc import Iterator, Sequence

from ompbind.cpuset import EMPTY, CpuSet, union
from ompbind.errors import OmpbindError, PlanError, RequestError
from ompbind.machine.model import Level, Machine, index_by_cpu, serving
from ompbind.openmp.binding import Bind, BindingSyntax
from ompbind.openmp.places import make_places, places_text
from ompbind.planning.allocation import make_placements
from ompbind.planning.conflicts import check_alone, make_available
from ompbind.planning.cpu_pool import CpuPool, make_cpu_pool
from ompbind.planning.memory_policy import add_policies
from ompbind.planning.notes import check_strict, explain
from ompbind.planning.occupancy import AvailableCpus, LiveRun, in_use
from ompbind.planning.plan import Placement, Plan
from ompbind.planning.request import Request
from ompbind.planning.runtime_choice import check_runtimes, choose_syntax
from ompbind.planning.strategies.table import STRATEGIES


def make_plan(machine: Machine, request: Request, occupied: Sequence[LiveRun] = ()) -> Plan:
    """Decide which rank gets which CPUs, among other live runs; equal arguments give equal plans.

    Raises MaskError when the mask does not fit the machine, and PlanError when the request does not.

    >>> from ompbind import Request, make_plan, read_machine
    >>> plan = make_plan(read_machine("synthetic:pack:2 core:4 pu:2"), Request(ranks=2))
    >>> plan.placements[1].cpus, plan.placements[1].threads
    ((8, 10, 12, 14), 4)
    """
    if request.strategy not in STRATEGIES:
        known = f"known are {', '.join(STRATEGIES)}"
        raise RequestError(f"there is no strategy {request.strategy!r}", hint=known)
    try:
        return _decide(machine, request, occupied)
    except OmpbindError as error:
        if request.compat_read:
            error.hint += f" ({'; '.join(request.compat_read)})"
        raise


def _decide(machine: Machine, request: Request, occupied: Sequence[LiveRun]) -> Plan:
    asked = request
    if request.is_unbound:
        request = request.replace(mask=None, strategy="all", smt="all", bind=Bind.NONE)
    check_runtimes(request)
    available = make_available(machine, request, occupied)
    pool, placements = _divide(available, request)
    draft = Plan(
        machine=machine,
        request=request,
        placements=tuple(_complete(machine, request, placements)),
        reserved=union(placement.reserved for placement in placements),
        occupied=available.runs,
        avoided=available.avoided,
    )
    draft = draft.replace(idle=available.free - draft.reserved - draft.used)
    check_alone(draft)
    draft = add_policies(draft)
    made = draft.replace(request=asked, notes=pool.notes + tuple(explain(draft)))
    check_strict(made)
    return made


def _divide(available: AvailableCpus, request: Request) -> tuple[CpuPool, list[Placement]]:
    """Divide the CPUs; an error says which runs have the rest of the machine, if that is why."""
    try:
        pool = make_cpu_pool(available, request)
        return pool, make_placements(pool)
    except PlanError as error:
        rest = available.avoided & available.machine.allowed
        if not rest or _fault_alone(available, request) == error.message:
            raise
        raise PlanError(f"{error.message}; {in_use(available, rest)}", hint=error.hint) from None


def _fault_alone(available: AvailableCpus, request: Request) -> str:
    """Return the message of the error that remains where no other run is left anything, "" if none does."""
    try:
        make_placements(make_cpu_pool(available.replace(avoided=EMPTY), request))
    except PlanError as error:
        return error.message
    return ""


def _complete(machine: Machine, request: Request, placements: Sequence[Placement]) -> Iterator[Placement]:
    """Add nodes, places and threads to what ranks get; those with one tuple of CPUs are alike."""
    core_of, node_of = index_by_cpu(machine.at(Level.CORE)), index_by_cpu(machine.at(Level.NODE))
    domains, memory_of = machine.at(Level.NODE), serving(machine.nodes)
    told = machine.bindable and choose_syntax(request) is not BindingSyntax.UNBOUND
    handed_out = sum(len(placement.cpus) for placement in placements)
    made: Placement | None = None
    for placement in placements:
        if made is not None and made.cpus is placement.cpus:
            made = made.replace(rank=placement.rank)
            yield made
            continue
        found = sorted({node_of[cpu] for cpu in placement.cpus if cpu in node_of})
        numbers = (domains[at].os_id for at in found)
        nodes = tuple(number for number in numbers if number is not None)
        cores: dict[int, list[int]] = {}
        for cpu in placement.cpus:
            cores.setdefault(core_of[cpu], []).append(cpu)
        places = make_places(
            placement.cpus, [*map(CpuSet, cores.values())], request.bind if told else Bind.NONE
        )
        threads = len(placement.cpus)
        if machine.quota is not None:
            threads = max(1, min(threads, int(machine.quota * threads / handed_out)))
        made = placement.replace(
            places=places if places_text(places) is not None else (),
            threads=request.threads or threads,
            nodes=nodes,
            memory_nodes=tuple(sorted({one for node in nodes for one in memory_of.get(node, ())})),
        )
        yield made
