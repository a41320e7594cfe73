"""`make_plan`: machine × request × other live runs → plan, without touching the world."""

from collections.abc import Iterator, Sequence

from ompbind.cpuset import EMPTY, CpuSet, union
from ompbind.errors import OmpbindError, PlanError, RequestError
from ompbind.machine.model import Domain, Level, Machine, index_by_cpu, serving
from ompbind.openmp.binding import Bind, Style
from ompbind.openmp.places import make_places, places_text
from ompbind.planning.allocation import Share, make_shares
from ompbind.planning.conflicts import check_alone, make_available
from ompbind.planning.cpu_pool import Ground, make_ground
from ompbind.planning.memory_policy import add_policies
from ompbind.planning.notes import check_strict, explain
from ompbind.planning.occupancy import AvailableCpus, LiveRun, in_use
from ompbind.planning.plan import Placement, Plan
from ompbind.planning.request import Request
from ompbind.planning.runtime_choice import check_runtimes, choose_style
from ompbind.planning.strategies.table import STRATEGIES
from ompbind.record import Record


class _Scene(Record):
    """What every placement of a plan is decided by; `handed_out` counts the CPUs of all ranks.

    `node_of` has the logical number of each CPU's NUMA node, `memory` the nodes with memory for each node.
    """

    machine: Machine
    request: Request
    core_of: dict[int, int]
    node_of: dict[int, int]
    nodes: tuple[Domain, ...]
    memory: dict[int, tuple[int, ...]]
    handed_out: int


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
        if request.compat is not None and request.compat.read:
            error.hint += f" ({'; '.join(request.compat.read)})"
        raise


def _decide(machine: Machine, request: Request, occupied: Sequence[LiveRun]) -> Plan:
    asked = request
    if request.is_unbound:
        request = request.replace(mask=None, strategy="all", smt="all", bind=Bind.NONE)
    check_runtimes(request)
    available = make_available(machine, request, occupied)
    ground, shares = _divide(available, request)
    draft = Plan(
        machine=machine,
        request=request,
        placements=tuple(_place_all(_make_scene(machine, request, shares), shares)),
        reserved=union(share.reserved for share in shares),
        occupied=available.runs,
        avoided=available.avoided,
    )
    draft = draft.replace(idle=available.free - draft.reserved - draft.used)
    check_alone(draft)
    draft = add_policies(draft)
    made = draft.replace(request=asked, notes=ground.notes + tuple(explain(draft)))
    check_strict(made)
    return made


def _divide(available: AvailableCpus, request: Request) -> tuple[Ground, list[Share]]:
    """Divide the CPUs; an error says which runs have the rest of the machine, if that is why."""
    try:
        ground = make_ground(available, request)
        return ground, make_shares(ground)
    except PlanError as error:
        rest = available.avoided & available.machine.allowed
        if not rest or _fault_alone(available, request) == error.message:
            raise
        raise PlanError(f"{error.message}; {in_use(available, rest)}", hint=error.hint) from None


def _fault_alone(available: AvailableCpus, request: Request) -> str:
    """Return the message of the error that remains where no other run is left anything, "" if none does."""
    try:
        make_shares(make_ground(available.replace(avoided=EMPTY), request))
    except PlanError as error:
        return error.message
    return ""


def _make_scene(machine: Machine, request: Request, shares: Sequence[Share]) -> _Scene:
    return _Scene(
        machine=machine,
        request=request,
        core_of=index_by_cpu(machine.at(Level.CORE)),
        node_of=index_by_cpu(machine.at(Level.NODE)),
        nodes=machine.at(Level.NODE),
        memory=serving(machine.nodes),
        handed_out=sum(len(share.cpus) for share in shares),
    )


def _place_all(scene: _Scene, shares: Sequence[Share]) -> Iterator[Placement]:
    """Yield the placement of every rank; ranks with one and the same share are alike but for their number."""
    last: Placement | None = None
    for rank, share in enumerate(shares):
        same = last is not None and share is shares[rank - 1]
        last = last.replace(rank=rank) if last is not None and same else _place(scene, rank, share)
        yield last


def _place(scene: _Scene, rank: int, share: Share) -> Placement:
    found = sorted({scene.node_of[cpu] for cpu in share.cpus if cpu in scene.node_of})
    nodes = tuple(number for at in found if (number := scene.nodes[at].os_id) is not None)
    told = scene.machine.bindable and choose_style(scene.request) is not Style.UNBOUND
    bind = scene.request.bind if told else Bind.NONE
    places = make_places(share.cpus, _cores(scene, share), bind)
    return Placement(
        rank=rank,
        cpus=share.cpus,
        places=places if places_text(places) is not None else (),
        threads=_threads(scene, len(share.cpus)),
        nodes=nodes,
        memory_nodes=tuple(sorted({one for node in nodes for one in scene.memory.get(node, ())})),
        reserved=share.reserved,
    )


def _cores(scene: _Scene, share: Share) -> list[CpuSet]:
    """Return the rank's CPUs core by core, cores in the order of their first CPU in the rank."""
    cores: dict[int, list[int]] = {}
    for cpu in share.cpus:
        cores.setdefault(scene.core_of[cpu], []).append(cpu)
    return [CpuSet(cpus) for cpus in cores.values()]


def _threads(scene: _Scene, cpus: int) -> int:
    """Return the threads of a rank: as asked, else one per CPU within its share of the quota."""
    if scene.request.threads is not None:
        return scene.request.threads
    if scene.machine.quota is None:
        return cpus
    return max(1, min(cpus, int(scene.machine.quota * cpus / scene.handed_out)))
