"""Allocate the CPU pool to ranks.

The idea: allocation works on whole cores, as a tuple with the *usable CPUs of each core*: at most as many as
--smt allows, in the machine's order. There are three ways:

1. A mask with several parts names the CPUs of each rank: rank r gets part r.
2. Otherwise the strategy divides the cores (`strategies`); --reserve-total cores are removed before.
3. With more ranks than cores, ranks share cores by hardware threads.

Then --reserve takes the last cores of each rank, with all their CPUs, and --service-cores the cores before
these. With --cores both come on top of the cores that compute, and the strategy places all of them. An
example with 2 ranks, 8 cores of 2 CPUs, --smt 1, --service-cores 1 and --reserve 1:

    core           0     1     2     3     |  4     5     6     7
    CPUs           0,8   1,9   2,10  3,11  |  4,12  5,13  6,14  7,15
    usable CPUs    0     1     2     3     |  4     5     6     7
    rank 0: CPUs   0     1                 |
    rank 1: CPUs                           |  4     5
    service CPUs               2,10        |              6,14
    reserved                         3,11  |                    7,15
"""

from collections.abc import Sequence
from itertools import cycle, pairwise

from ompbind.cpuset import EMPTY, CpuSet, count, union
from ompbind.errors import PlanError
from ompbind.machine.model import Level
from ompbind.planning.allocation_checks import (
    check_overlap,
    check_placements,
    no_core_left_error,
    too_many_ranks_error,
)
from ompbind.planning.cpu_pool import (
    CpuPool,
    find_siblings,
    find_usable_cpus,
    limit_cpus,
    make_cpu_pool,
    sort_by_position,
)
from ompbind.planning.memory import measure_remote_memory
from ompbind.planning.other_runs import OCCUPIED_HINT
from ompbind.planning.plan import Placement
from ompbind.planning.request import Request
from ompbind.planning.strategies.core_sequence import (
    CoreSequence,
    make_core_sequence,
    make_subsequence,
)
from ompbind.planning.strategies.sized import RequestedCores, take_cores
from ompbind.planning.strategies.strategies import STRATEGIES, Strategy, check_strategy, sort_by_node


def make_placements(pool: CpuPool) -> list[Placement]:
    """Return a placement for every rank, with its CPUs, its service CPUs and its reserved CPUs.

    Raises PlanError or MaskError if a rank would have no core, or would use or reserve CPUs of another rank,
    or would have more threads than --cores allows.
    """
    if pool.cpus_by_rank:
        check_overlap(pool)
    if pool.request.devices:
        from ompbind.planning.devices.assignment import add_devices  # noqa: PLC0415 - door: devices

        pool = add_devices(pool)
    placements = _place_parts(pool) if pool.cpus_by_rank else _place_by_strategy(pool)
    if pool.devices:
        pairs = zip(placements, pool.devices, strict=True)
        placements = [placement.replace(devices=devices) for placement, devices in pairs]
    request = pool.request
    if request.has_service_cpus:
        overlapping = not pool.cpus_by_rank and STRATEGIES[request.effective_strategy].overlapping
        placements = take_service_cpus(request, placements, overlapping=overlapping)
    if pool.cpus_by_rank or request.reserve or request.reserve_total or (request.cores and request.threads):
        check_placements(pool, placements)
    return placements


def _place_parts(pool: CpuPool) -> list[Placement]:
    """Give every rank its part of the mask, without cores that are reserved and CPUs that --smt excludes."""
    reserved_each, remainder = divmod(pool.request.reserve_total, len(pool.cpus_by_rank))
    placements = []
    for rank, part in enumerate(pool.cpus_by_rank):
        position = {cpu: index for index, cpu in reversed(list(enumerate(part)))}
        core_cpus = find_usable_cpus(pool.replace(cpus=part))
        in_order = sorted(core_cpus, key=lambda cpus: min(position[cpu] for cpu in cpus))
        reserve = pool.request.reserve + reserved_each + (rank < remainder)
        placements.append(_make_placement(pool, rank, in_order, reserve))
    return placements


def _place_by_strategy(pool: CpuPool) -> list[Placement]:
    """Let the strategy divide the cores of the pool among the ranks."""
    request = pool.request
    core_cpus, reserved = find_usable_cpus(pool), EMPTY
    strategy, requested = STRATEGIES[request.effective_strategy], None
    if strategy.by_os_number and request.nodes is None:  # nodes that the request names keep its order
        core_cpus = sort_by_node(pool.machine, core_cpus)
    if request.reserve_total:
        core_cpus, reserved = reserve_cores(pool, core_cpus)
    distances = {} if request.names_cpus else measure_remote_memory(pool.machine)
    sequence = make_core_sequence(pool.machine, core_cpus, distances)
    check_strategy(sequence, request.effective_strategy)
    if request.cores or request.threads:
        requested = find_requested(request, strategy, core_cpus)
    ranks = request.ranks or strategy.auto_ranks(sequence, requested)
    if strategy.level:
        in_domains = (core for domain in sequence.domains(strategy.level) for core in domain)
        sequence = make_subsequence(sequence, tuple(sorted(in_domains)))
    if strategy.overlapping:
        shared = _make_placement(pool, 0, sequence.core_cpus, request.reserve)
        placements = [shared.replace(rank=rank) for rank in range(ranks)]
    elif ranks > len(sequence.core_cpus) and not (request.cores or (requested and requested.total > 1)):
        placements = place_on_shared_cores(pool, sequence.core_cpus, ranks)
    else:
        placements = _place_on_own_cores(pool, sequence, ranks, requested)
    if not reserved:
        return placements
    return [placement.replace(reserved=placement.reserved | reserved) for placement in placements]


def _place_on_own_cores(
    pool: CpuPool, sequence: CoreSequence, ranks: int, requested: RequestedCores | None
) -> list[Placement]:
    """Let the strategy give each rank cores of its own, near its devices if it has some."""
    request = pool.request
    if pool.devices:
        from ompbind.planning.devices.assignment import divide_near  # noqa: PLC0415 - door: devices

        allocations = divide_near(pool, sequence, requested)
    else:
        allocations = STRATEGIES[request.effective_strategy].divide(sequence, ranks, requested)
    if request.service_cores and not requested:
        # the cores with the fewest domains first, and service cores after them
        others = request.other_cores
        sizes = [max(1, len(cores) - others) for cores in allocations]
        allocations = [
            take_cores(sequence, cores, RequestedCores(compute=size, service=others))
            for cores, size in zip(allocations, sizes, strict=True)
        ]
    return [
        _make_placement(pool, rank, [sequence.core_cpus[core] for core in cores], request.reserve)
        for rank, cores in enumerate(allocations)
    ]


def _make_placement(pool: CpuPool, rank: int, core_cpus: Sequence[CpuSet], reserve: int) -> Placement:
    """Return the placement of a rank on its cores: first its compute cores, then service and reserved cores.

    Its service CPUs are all CPUs of its service cores that the mask, or the part of this rank, names.
    """
    kept_cores = len(core_cpus) - reserve
    used_cores = kept_cores - pool.request.service_cores
    if used_cores < 1:
        raise no_core_left_error(pool.request, rank, len(core_cpus), reserve)
    used = union(core_cpus[:used_cores])
    part = tuple(cpu for cpu in pool.cpus_by_rank[rank] if cpu in used) if pool.cpus_by_rank else ()
    named_cpus = pool.cpus_by_rank[rank] if pool.cpus_by_rank else pool.position
    service = find_siblings(pool.available, core_cpus[used_cores:kept_cores])
    return Placement(
        rank=rank,
        cpus=part or sort_by_position(pool, used),
        reserved=find_siblings(pool.available, core_cpus[kept_cores:]),
        service_cpus=CpuSet(cpu for cpu in service if cpu in named_cpus) if service else EMPTY,
    )


def find_requested(
    request: Request, strategy: Strategy, core_cpus: Sequence[CpuSet]
) -> RequestedCores | None:
    """Return the cores that each rank requests with --cores, or else with --threads; None for neither."""
    service, reserved = request.service_cores, request.reserve
    if request.cores:
        return RequestedCores(
            compute=request.cores, service=service, reserved=reserved, remedy="fewer cores with -c"
        )
    if request.threads is None or not strategy.sized:
        return None
    compute = -(-request.threads // min(len(cpus) for cpus in core_cpus))
    remedy = "fewer threads with -t"
    if service:
        return RequestedCores(compute=compute, service=service, reserved=reserved, remedy=remedy)
    return RequestedCores(compute=compute + reserved, remedy=remedy)  # the last ones are reserved


def reserve_cores(pool: CpuPool, core_cpus: tuple[CpuSet, ...]) -> tuple[tuple[CpuSet, ...], CpuSet]:
    """Remove --reserve-total cores, the last core of each NUMA node in turn.

    Returns the usable CPUs of the remaining cores, and all free CPUs of the removed cores.
    """
    wanted = pool.request.reserve_total
    if wanted >= len(core_cpus):
        ranks, cores = pool.request.ranks or 1, len(core_cpus)
        most = cores - ranks
        raise PlanError(
            f"cannot reserve {count(wanted, 'core')} of {count(cores, 'usable core')} and start "
            f"{count(ranks, 'rank')}",
            hint=f"reserve at most {count(most, 'core')}" if most > 0 else "reserve fewer cores",
        )
    sequence = make_core_sequence(pool.machine, core_cpus)
    nodes = sequence.domains(Level.NODE)
    without_node = tuple(set(range(len(core_cpus))).difference(*nodes))
    node_cores = cycle([[core_cpus[core] for core in sorted(cores)] for cores in (*nodes, without_node)])
    removed: list[CpuSet] = []
    while len(removed) < wanted:
        remaining = next(node_cores)
        removed.extend([remaining.pop()] if remaining else ())
    reserved = union(removed)
    kept = tuple(cpus for cpus in core_cpus if cpus.isdisjoint(reserved))
    return kept, find_siblings(pool.available, removed)


# Service CPUs that are counted in CPUs, not in cores: which CPUs of each rank they are.
#
# `service_total` CPUs of all ranks are divided evenly; the last ranks have one more if they do not divide.
# Each rank gives its CPUs with the highest numbers. Example: 3 service CPUs, 2 ranks:
#
#     rank   its CPUs   compute   service
#     0      0-3        0-2       3
#     1      4-7        4-5       6-7


def divide_service(request: Request, ranks: int) -> list[int]:
    """Return how many service CPUs each rank should have, besides its service cores."""
    share, remainder = divmod(request.service_total, ranks)
    return [request.service_each + share + (rank >= ranks - remainder) for rank in range(ranks)]


def use_whole_service_cores(request: Request) -> Request:
    """Return a request with service cores instead of service CPUs, for ranks that request a number of cores.

    Service cores come on top of these cores: each rank gets as many as it would have service CPUs.
    """
    cores = request.service_cores + divide_service(request, request.ranks or 1)[-1]
    return request.replace(service_cores=cores, service_total=0, service_each=0)


def take_service_cpus(
    request: Request, placements: Sequence[Placement], *, overlapping: bool
) -> list[Placement]:
    """Return the placements with the highest CPUs of each rank as its service CPUs.

    If ranks are `overlapping`, all have the same CPUs, and so the same service CPUs. Raises PlanError if a
    rank would have no CPU that computes, unless service CPUs are optional.
    """
    shares = divide_service(request, len(placements))
    if not shares[-1]:
        return [*placements]
    if overlapping:
        shares = [sum(shares)] * len(shares)
    taken: dict[tuple[int, int], Placement] = {}  # many ranks can share one tuple of CPUs
    for placement, number in zip(placements, shares, strict=True):
        key, cpus = (id(placement.cpus), number), len(placement.cpus)
        if key in taken:
            continue
        if number >= cpus and not request.service_optional:
            raise PlanError(
                f"rank {placement.rank} would have no CPU left: it gets {count(cpus, 'CPU')} and has "
                f"{count(number, 'service CPU')}",
                hint="use fewer service CPUs (--service-total), or give the rank more CPUs",
            )
        service = CpuSet(sorted(placement.cpus)[max(1, cpus - number) :])
        taken[key] = placement.replace(
            cpus=tuple(cpu for cpu in placement.cpus if cpu not in service),
            service_cpus=placement.service_cpus | service,
        )
    return [
        taken[id(placement.cpus), number].replace(rank=placement.rank)
        for placement, number in zip(placements, shares, strict=True)
    ]


# More ranks than cores: ranks share as few cores as possible, each with hardware threads of its own.
#
# Every core gets one rank before any core gets two, and no rank has CPUs of two cores.


def place_on_shared_cores(pool: CpuPool, core_cpus: tuple[CpuSet, ...], ranks: int) -> list[Placement]:
    """Place more ranks than cores; `core_cpus` are the usable CPUs of each core. Raises PlanError."""
    if pool.available.avoided:
        unoccupied = make_cpu_pool(pool.available.replace(avoided=EMPTY), pool.request)
        if ranks <= len(find_usable_cpus(unoccupied)) - pool.request.reserve_total:
            cores = len(core_cpus)  # ranks would share these only because other runs occupy the rest
            raise PlanError(
                f"{count(ranks, 'rank')} would have to share {count(cores, 'core')}",
                hint=f"start at most {count(cores, 'rank')}, or {OCCUPIED_HINT}",
            )
    placements = _share_cores(pool, core_cpus, ranks)
    if not pool.devices:
        return placements
    from ompbind.planning.devices.assignment import exchange_cpus  # noqa: PLC0415 - door: devices

    return exchange_cpus(pool, placements)


def _share_cores(pool: CpuPool, core_cpus: tuple[CpuSet, ...], ranks: int) -> list[Placement]:
    """Return the placements of more ranks than cores: cores with several ranks split their siblings evenly.

    Raises PlanError for more ranks than CPUs, unless ranks may share CPUs.
    """
    if pool.request.other_cores:
        raise no_core_left_error(pool.request, ranks - 1, 1, pool.request.reserve)
    in_pool = find_siblings(pool.available, core_cpus) & CpuSet(pool.cpus)
    limit = pool.request.effective_smt if isinstance(pool.request.effective_smt, int) else None
    siblings = [core.cpus & in_pool for core in pool.cores(in_pool)]
    shareable = [limit_cpus(cpus, limit or len(cpus), pool.request.sibling) for cpus in siblings]
    cpus = [cpu for core in shareable for cpu in core]
    if ranks > len(cpus):
        if not pool.request.share:
            raise too_many_ranks_error(pool.available, ranks, CpuSet(cpus))
        return [Placement(rank=rank, cpus=(cpus[rank * len(cpus) // ranks],)) for rank in range(ranks)]
    counts = _count_ranks_per_core([len(core) for core in shareable], ranks)
    used = [
        usable if len(usable) >= core_ranks else limit_cpus(core, core_ranks, pool.request.sibling)
        for usable, core, core_ranks in zip(core_cpus, shareable, counts, strict=True)
    ]
    shares: list[CpuSet] = []
    for core, core_ranks in zip(used, counts, strict=True):  # its CPUs are split evenly, in order
        numbers = tuple(core)
        bounds = [i * len(numbers) // core_ranks for i in range(core_ranks + 1)]
        shares.extend(CpuSet(numbers[start:stop]) for start, stop in pairwise(bounds))
    return [Placement(rank=rank, cpus=sort_by_position(pool, share)) for rank, share in enumerate(shares)]


def _count_ranks_per_core(capacities: Sequence[int], ranks: int) -> list[int]:
    """Return how many ranks each core gets: one more per round for every core with a free hardware thread.

    `capacities` are the hardware threads of each core; their sum must be at least `ranks`. If the last round
    has fewer ranks than cores, its ranks are spread evenly over the cores.
    """
    counts = [0] * len(capacities)
    while (left := ranks - sum(counts)) > 0:
        not_full = [core for core, capacity in enumerate(capacities) if counts[core] < capacity]
        if left < len(not_full):
            not_full = [not_full[i * len(not_full) // left] for i in range(left)]
        for core in not_full:
            counts[core] += 1
    return counts
