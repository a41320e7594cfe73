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

from collections.abc import Mapping, Sequence
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
from ompbind.planning.placing import Cores, Rows
from ompbind.planning.plan import Placement
from ompbind.planning.request import Request
from ompbind.planning.sized import RequestedCores, take_cores
from ompbind.planning.strategies import STRATEGIES, Strategy, check_strategy


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
        usable = find_usable_cpus(pool.replace(cpus=part))
        in_order = sorted(usable, key=lambda row: min(position[cpu] for cpu in usable[row]))
        reserve = pool.request.reserve + reserved_each + (rank < remainder)
        placements.append(_make_placement(pool, rank, usable, in_order, reserve))
    return placements


def _place_by_strategy(pool: CpuPool) -> list[Placement]:
    """Let the strategy divide the cores of the pool among the ranks."""
    request = pool.request
    usable, reserved = find_usable_cpus(pool), EMPTY
    strategy, requested, rows = STRATEGIES[request.effective_strategy], None, list(usable)
    table, numbers = pool.machine.table, {node.number: node.cpus for node in pool.machine.nodes}
    if strategy.by_os_number and request.nodes is None:  # nodes that the request names keep its order
        node_of = {row: number for number, cpus in numbers.items() for row in table.rows(cpus)}
        rows.sort(key=lambda row: node_of.get(row, 0))  # lscpu shows node 0 where there are no nodes
    if request.reserve_total:
        rows, reserved = reserve_cores(pool, rows)
    distances = {} if request.names_cpus else measure_remote_memory(pool.machine)
    far = {row: distances.get(usable[row].first, 0) for row in rows} if distances else {}
    cores = Cores(table=table, rows=tuple(rows), distances=far)
    check_strategy(cores, request.effective_strategy)
    if request.cores or request.threads:
        requested = find_requested(request, strategy, [usable[row] for row in rows])
    ranks = request.ranks or strategy.auto_ranks(cores, requested)
    if strategy.level:
        in_domains = {row for domain in cores.domains(strategy.level) for row in domain}
        cores = cores.take(tuple(row for row in rows if row in in_domains))
    if strategy.overlapping:
        shared = _make_placement(pool, 0, usable, cores.rows, request.reserve)
        placements = [shared.replace(rank=rank) for rank in range(ranks)]
    elif ranks > len(cores.rows) and not (request.cores or (requested and requested.total > 1)):
        placements = _place_on_shared_cores(pool, usable, cores.rows, ranks)
    else:
        placements = _place_on_own_cores(pool, usable, cores, ranks, requested)
    if not reserved:
        return placements
    return [placement.replace(reserved=placement.reserved | reserved) for placement in placements]


def _place_on_own_cores(
    pool: CpuPool, usable: Mapping[int, CpuSet], cores: Cores, ranks: int, requested: RequestedCores | None
) -> list[Placement]:
    """Let the strategy give each rank cores of its own, near its devices if it has some."""
    request = pool.request
    if pool.devices:
        from ompbind.planning.devices.assignment import divide_near  # noqa: PLC0415 - door: devices

        allocations = divide_near(pool, cores, requested)
    else:
        allocations = STRATEGIES[request.effective_strategy].divide(cores, ranks, requested)
    if request.service_cores and not requested:
        others = request.other_cores
        sizes = [RequestedCores(compute=max(1, len(share) - others), service=others) for share in allocations]
        pairs = zip(allocations, sizes, strict=True)
        allocations = [take_cores(cores.take(share), size) for share, size in pairs]
    return [
        _make_placement(pool, rank, usable, share, request.reserve) for rank, share in enumerate(allocations)
    ]


def _make_placement(
    pool: CpuPool, rank: int, usable: Mapping[int, CpuSet], rows: Sequence[int], reserve: int
) -> Placement:
    """Return the placement of a rank on its cores: first its compute cores, then service and reserved cores.

    Its service CPUs are all CPUs of its service cores that the mask, or the part of this rank, names.
    """
    kept_cores = len(rows) - reserve
    used_cores = kept_cores - pool.request.service_cores
    if used_cores < 1:
        raise no_core_left_error(pool.request, rank, len(rows), reserve)
    used = union(usable[row] for row in rows[:used_cores])
    part = tuple(cpu for cpu in pool.cpus_by_rank[rank] if cpu in used) if pool.cpus_by_rank else ()
    named_cpus = pool.cpus_by_rank[rank] if pool.cpus_by_rank else pool.position
    service = find_siblings(pool.available, rows[used_cores:kept_cores])
    return Placement(
        rank=rank,
        cpus=part or sort_by_position(pool, used),
        reserved=find_siblings(pool.available, rows[kept_cores:]),
        service_cpus=CpuSet(cpu for cpu in service if cpu in named_cpus) if service else EMPTY,
    )


def find_requested(
    request: Request, strategy: Strategy, core_cpus: Sequence[CpuSet]
) -> RequestedCores | None:
    """Return the cores that each rank requests with --cores, or else with --threads; None for neither."""
    service, reserved = request.service_cores, request.reserve
    if request.cores:
        compute, remedy = request.cores, "fewer cores with -c"
    elif request.threads is None or not strategy.sized:
        return None
    else:
        compute, remedy = -(-request.threads // min(map(len, core_cpus))), "fewer threads with -t"
        if not service:
            compute, reserved = compute + reserved, 0  # the last ones are reserved
    return RequestedCores(compute=compute, service=service, reserved=reserved, remedy=remedy)


def reserve_cores(pool: CpuPool, rows: list[int]) -> tuple[list[int], CpuSet]:
    """Remove --reserve-total cores, the last core of each NUMA node in turn.

    Returns the remaining cores, and all free CPUs of the removed cores.
    """
    wanted = pool.request.reserve_total
    if wanted >= len(rows):
        ranks, cores = pool.request.ranks or 1, len(rows)
        most = cores - ranks
        raise PlanError(
            f"cannot reserve {count(wanted, 'core')} of {count(cores, 'usable core')} and start "
            f"{count(ranks, 'rank')}",
            hint=f"reserve at most {count(most, 'core')}" if most > 0 else "reserve fewer cores",
        )
    nodes = Cores(table=pool.machine.table, rows=tuple(rows), distances={}).domains(Level.NODE)
    without_node = [row for row in rows if not any(row in node for node in nodes)]
    node_cores = cycle([list(cores) for cores in (*nodes, without_node)])
    removed: list[int] = []
    while len(removed) < wanted:
        if remaining := next(node_cores):
            removed.append(remaining.pop())
    return [row for row in rows if row not in removed], find_siblings(pool.available, removed)


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
        key = (id(placement.cpus), number)
        taken[key] = taken.get(key) or _take_highest(request, placement, number)
    return [
        taken[id(placement.cpus), number].replace(rank=placement.rank)
        for placement, number in zip(placements, shares, strict=True)
    ]


def _take_highest(request: Request, placement: Placement, number: int) -> Placement:
    """Return the placement of a rank with its highest CPUs as service CPUs."""
    cpus = len(placement.cpus)
    if number >= cpus and not request.service_optional:
        raise PlanError(
            f"rank {placement.rank} would have no CPU left: it gets {count(cpus, 'CPU')} and has "
            f"{count(number, 'service CPU')}",
            hint="use fewer service CPUs (--service-total), or give the rank more CPUs",
        )
    service = CpuSet(sorted(placement.cpus)[max(1, cpus - number) :])
    return placement.replace(
        cpus=tuple(cpu for cpu in placement.cpus if cpu not in service),
        service_cpus=placement.service_cpus | service,
    )


def _place_on_shared_cores(
    pool: CpuPool, usable: Mapping[int, CpuSet], rows: Rows, ranks: int
) -> list[Placement]:
    """Place more ranks than cores: cores with several ranks split their hardware threads evenly.

    Every core gets one rank before any core gets two, and no rank has CPUs of two cores.
    Raises PlanError for more ranks than CPUs, unless ranks may share CPUs.
    """
    _check_free_cores(pool, ranks, len(rows))
    if pool.request.other_cores:
        raise no_core_left_error(pool.request, ranks - 1, 1, pool.request.reserve)
    in_pool = find_siblings(pool.available, rows) & CpuSet(pool.cpus)
    limit = pool.request.effective_smt if isinstance(pool.request.effective_smt, int) else None
    siblings = [pool.machine.table.cores[row] & in_pool for row in rows]
    shareable = [limit_cpus(cpus, limit or len(cpus), pool.request.sibling) for cpus in siblings]
    cpus = [cpu for core in shareable for cpu in core]
    if ranks > len(cpus):
        if not pool.request.share:
            raise too_many_ranks_error(pool.available, ranks, CpuSet(cpus))
        shares = [CpuSet([cpus[rank * len(cpus) // ranks]]) for rank in range(ranks)]
    else:
        counts = _count_ranks_per_core([len(core) for core in shareable], ranks)
        shares = []
        for row, core, core_ranks in zip(rows, shareable, counts, strict=True):
            if len(usable[row]) >= core_ranks:
                own = tuple(usable[row])
            else:
                own = tuple(limit_cpus(core, core_ranks, pool.request.sibling))
            bounds = [i * len(own) // core_ranks for i in range(core_ranks + 1)]
            shares += [CpuSet(own[start:stop]) for start, stop in pairwise(bounds)]
    placements = [
        Placement(rank=rank, cpus=sort_by_position(pool, share)) for rank, share in enumerate(shares)
    ]
    if not pool.devices:
        return placements
    from ompbind.planning.devices.assignment import exchange_cpus  # noqa: PLC0415 - door: devices

    return exchange_cpus(pool, placements)


def _check_free_cores(pool: CpuPool, ranks: int, cores: int) -> None:
    """Raise PlanError if ranks would have to share cores only because other runs occupy the rest."""
    if not pool.available.avoided:
        return
    unoccupied = make_cpu_pool(pool.available.replace(avoided=EMPTY), pool.request)
    if ranks <= len(find_usable_cpus(unoccupied)) - pool.request.reserve_total:
        raise PlanError(
            f"{count(ranks, 'rank')} would have to share {count(cores, 'core')}",
            hint=f"start at most {count(cores, 'rank')}, or {OCCUPIED_HINT}",
        )


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
