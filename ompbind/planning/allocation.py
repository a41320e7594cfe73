"""Allocate the CPU pool to ranks.

The idea: allocation works on whole cores, as a tuple with the *usable CPUs of each core*: at most as many as
--smt allows, in the machine's order. There are three ways:

1. A mask with several parts names the CPUs of each rank: rank r gets part r.
2. Otherwise the strategy divides the cores (`strategies`); --reserve-total cores are removed before.
3. With more ranks than cores, ranks share cores by hardware threads (`oversubscription`).

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

from __future__ import annotations

from itertools import cycle, pairwise

from ompbind.cpuset import EMPTY, CpuSet, count, union
from ompbind.errors import PlanError
from ompbind.machine.model import Level, Machine, find_overlapping
from ompbind.planning.allocation_checks import (
    check_overlap,
    check_reserve,
    check_smt,
    check_threads,
    no_core_left_error,
    too_many_ranks_error,
)
from ompbind.planning.cpu_pool import CpuPool, make_cpu_pool
from ompbind.planning.memory_policy import measure_remote_memory
from ompbind.planning.occupancy import OCCUPIED_HINT, AvailableCpus
from ompbind.planning.plan import Placement
from ompbind.planning.request import Request
from ompbind.planning.service_cpus import take_service_cpus
from ompbind.planning.strategies.core_sequence import CoreIndices, CoreSequence, make_core_sequence
from ompbind.planning.strategies.shares import RequestedCores, take_cores
from ompbind.planning.strategies.table import STRATEGIES, Strategy, check_strategy

TYPE_CHECKING = False  # importing typing takes time: see record.py
if TYPE_CHECKING:
    from collections.abc import Sequence

SMT8_AUTO_LIMIT = 4
"""Hardware threads per core that `--smt auto` uses on cores with eight or more (POWER); on others it is 1."""


def make_placements(pool: CpuPool) -> list[Placement]:
    """Return a placement for every rank, with its CPUs, its service CPUs and its reserved CPUs.

    Raises PlanError or MaskError if a rank would have no core, or would use or reserve CPUs of another rank,
    or would have more threads than --cores allows.
    """
    if not pool.request.share:
        check_overlap(pool)
    if pool.request.devices:
        from ompbind.planning.devices.assignment import add_devices  # late: most runs use no devices

        pool = add_devices(pool)
    placements = _place_parts(pool) if pool.parts else _place_by_strategy(pool)
    if pool.devices:
        pairs = zip(placements, pool.devices, strict=True)
        placements = [placement.replace(devices=devices) for placement, devices in pairs]
    overlapping = not pool.parts and STRATEGIES[pool.request.strategy].overlapping
    placements = take_service_cpus(pool.request, placements, overlapping=overlapping)
    check_reserve(pool, placements)
    check_threads(pool.request, placements)
    if pool.parts and isinstance(pool.request.smt, int):
        check_smt(pool, placements, pool.request.smt)
    return placements


def _place_parts(pool: CpuPool) -> list[Placement]:
    """Give every rank its part of the mask, without cores that are reserved and CPUs that --smt excludes."""
    reserved_each, remainder = divmod(pool.request.reserve_total, len(pool.parts))
    placements = []
    for rank, part in enumerate(pool.parts):
        position = {cpu: index for index, cpu in reversed(list(enumerate(part)))}
        core_cpus = _find_usable_cpus(pool.replace(cpus=part))
        in_order = sorted(core_cpus, key=lambda cpus: min(position[cpu] for cpu in cpus))
        reserve = pool.request.reserve + reserved_each + (rank < remainder)
        placements.append(_make_placement(pool, rank, in_order, reserve))
    return placements


def _place_by_strategy(pool: CpuPool) -> list[Placement]:
    """Let the strategy divide the cores of the pool among the ranks."""
    request = pool.request
    core_cpus, reserved = _reserve_total(pool, _sort_by_node(pool, _find_usable_cpus(pool)))
    distances = {} if request.names_cpus else measure_remote_memory(pool.machine)
    sequence = make_core_sequence(pool.machine, core_cpus, distances)
    check_strategy(sequence, request.strategy)
    strategy = STRATEGIES[request.strategy]
    requested = _find_requested(request, strategy, core_cpus)
    ranks = request.ranks or strategy.auto_ranks(sequence, requested)
    if strategy.level:
        in_domains = (core for domain in sequence.domains(strategy.level) for core in domain)
        sequence = sequence.subsequence(tuple(sorted(in_domains)))
        core_cpus = sequence.core_cpus
    if strategy.overlapping:
        shared = _make_placement(pool, 0, core_cpus, request.reserve)
        placements = [shared.replace(rank=rank) for rank in range(ranks)]
    elif ranks > len(core_cpus) and not (request.cores or (requested and requested.total > 1)):
        _check_free_cores(pool, ranks, len(core_cpus))
        placements = _place_on_shared_cores(pool, core_cpus, ranks)
        if pool.devices:
            from ompbind.planning.devices.assignment import exchange_cpus  # late, as above

            placements = exchange_cpus(pool, placements)
    else:
        if pool.devices:
            from ompbind.planning.devices.assignment import divide_near  # late, as above

            allocations = divide_near(pool, sequence, requested)
        else:
            allocations = strategy.divide(sequence, ranks, requested)
        if request.service_cores and not requested:
            allocations = [_put_compute_first(sequence, cores, request) for cores in allocations]
        placements = [
            _make_placement(pool, rank, [core_cpus[core] for core in cores], request.reserve)
            for rank, cores in enumerate(allocations)
        ]
    if not reserved:
        return placements
    return [placement.replace(reserved=placement.reserved | reserved) for placement in placements]


def _sort_by_node(pool: CpuPool, core_cpus: tuple[CpuSet, ...]) -> tuple[CpuSet, ...]:
    """Return the usable CPUs of each core, by the OS numbers of their NUMA nodes if the strategy requires it.

    Nodes that the request names keep its order.
    """
    if not STRATEGIES[pool.request.strategy].by_os_number or pool.request.nodes is not None:
        return core_cpus
    numbers = {cpu: node.number for node in pool.machine.nodes for cpu in node.cpus}
    # lscpu shows node 0 where there are no nodes
    return tuple(sorted(core_cpus, key=lambda cpus: numbers.get(cpus.first, 0)))


def _find_requested(
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


def _put_compute_first(sequence: CoreSequence, cores: CoreIndices, request: Request) -> CoreIndices:
    """Return the cores of a rank, those with the fewest domains first, and service cores after them."""
    others = request.other_cores
    requested = RequestedCores(compute=max(1, len(cores) - others), service=others)
    return take_cores(sequence, cores, requested)


def _check_free_cores(pool: CpuPool, ranks: int, cores: int) -> None:
    """Raise PlanError if ranks would have to share cores only because other runs occupy the rest."""
    if not pool.available.avoided:
        return
    unoccupied = make_cpu_pool(pool.available.replace(avoided=EMPTY), pool.request)
    if ranks <= len(_find_usable_cpus(unoccupied)) - pool.request.reserve_total:
        raise PlanError(
            f"{count(ranks, 'rank')} would have to share {count(cores, 'core')}",
            hint=f"start at most {count(cores, 'rank')}, or {OCCUPIED_HINT}",
        )


def _make_placement(pool: CpuPool, rank: int, core_cpus: Sequence[CpuSet], reserve: int) -> Placement:
    """Return the placement of a rank on its cores: first its compute cores, then service and reserved cores.

    Its service CPUs are all CPUs of its service cores that the mask, or the part of this rank, names.
    """
    kept_cores = len(core_cpus) - reserve
    used_cores = kept_cores - pool.request.service_cores
    if used_cores < 1:
        raise no_core_left_error(pool.request, rank, len(core_cpus), reserve)
    used = union(core_cpus[:used_cores])
    part = tuple(cpu for cpu in pool.parts[rank] if cpu in used) if pool.parts else ()
    named_cpus = pool.parts[rank] if pool.parts else pool.position
    service = _find_siblings(pool.available, core_cpus[used_cores:kept_cores])
    return Placement(
        rank=rank,
        cpus=part or _sort_by_position(pool, used),
        reserved=_find_siblings(pool.available, core_cpus[kept_cores:]),
        service_cpus=CpuSet(cpu for cpu in service if cpu in named_cpus) if service else EMPTY,
    )


def _sort_by_position(pool: CpuPool, cpus: CpuSet) -> tuple[int, ...]:
    """Return CPUs in the order of the pool."""
    return tuple(sorted(cpus, key=pool.position.__getitem__))


def _find_usable_cpus(pool: CpuPool) -> tuple[CpuSet, ...]:
    """Return the usable CPUs of each core of the pool: at most as many as SMT allows, in machine order."""
    in_pool, limit = CpuSet(pool.cpus), _find_smt_limit(pool)
    return tuple(
        _limit_cpus(core.cpus & in_pool, limit, pool.request.sibling) for core in pool.cores(in_pool)
    )


def _find_smt_limit(pool: CpuPool) -> int:
    """Return how many CPUs of each core may be used."""
    if isinstance(pool.request.smt, int):
        return pool.request.smt
    threads = _count_threads(pool.machine)
    if pool.request.smt == "all" or pool.explicit:
        return threads
    return SMT8_AUTO_LIMIT if threads >= 8 else 1


def _count_threads(machine: Machine) -> int:
    """Return the hardware threads of the largest core, on POWER with offline ones.

    POWER numbers the hardware threads of a core one after the other, so the smallest distance between the
    first CPUs of two cores shows how many there are.
    """
    cores = machine.at(Level.CORE)
    online = max(len(core.cpus) for core in cores)
    if not (machine.offline and machine.arch.startswith("ppc")):
        return online
    firsts = sorted(core.cpus.first for core in cores)
    return min((second - first for first, second in pairwise(firsts)), default=online)


def _limit_cpus(cpus: CpuSet, limit: int, sibling: str) -> CpuSet:
    """Return the first or last `limit` CPUs of one core."""
    if len(cpus) <= limit:
        return cpus
    numbers = tuple(cpus)
    return CpuSet(numbers[:limit] if sibling == "first" else numbers[-limit:])


def _reserve_total(pool: CpuPool, core_cpus: tuple[CpuSet, ...]) -> tuple[tuple[CpuSet, ...], CpuSet]:
    """Remove --reserve-total cores, the last core of each NUMA node in turn.

    Returns the usable CPUs of the remaining cores, and all free CPUs of the removed cores.
    """
    wanted = pool.request.reserve_total
    if not wanted:
        return core_cpus, EMPTY
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
    return kept, _find_siblings(pool.available, removed)


def _find_siblings(available: AvailableCpus, core_cpus: Sequence[CpuSet]) -> CpuSet:
    """Return all free CPUs of the cores to which the given CPUs belong."""
    if not core_cpus:
        return EMPTY
    cores = find_overlapping(available.machine.at(Level.CORE), union(core_cpus))
    return union(core.cpus for core in cores) & available.free


def _place_on_shared_cores(pool: CpuPool, core_cpus: tuple[CpuSet, ...], ranks: int) -> list[Placement]:
    """Place more ranks than cores: cores with several ranks split their siblings evenly."""
    if pool.request.other_cores:
        raise no_core_left_error(pool.request, ranks - 1, 1, pool.request.reserve)
    in_pool = _find_siblings(pool.available, core_cpus) & CpuSet(pool.cpus)
    limit = pool.request.smt if isinstance(pool.request.smt, int) else None
    siblings = [core.cpus & in_pool for core in pool.cores(in_pool)]
    shareable = [_limit_cpus(cpus, limit or len(cpus), pool.request.sibling) for cpus in siblings]
    cpus = [cpu for core in shareable for cpu in core]
    if ranks > len(cpus):
        if not pool.request.share:
            raise too_many_ranks_error(pool, ranks, CpuSet(cpus))
        return [Placement(rank=rank, cpus=(cpus[rank * len(cpus) // ranks],)) for rank in range(ranks)]
    from ompbind.planning.oversubscription import count_ranks_per_core, split_core  # late: rare

    counts = count_ranks_per_core([len(core) for core in shareable], ranks)
    used = [
        usable if len(usable) >= core_ranks else _limit_cpus(core, core_ranks, pool.request.sibling)
        for usable, core, core_ranks in zip(core_cpus, shareable, counts, strict=True)
    ]
    shares = [
        share for core, core_ranks in zip(used, counts, strict=True) for share in split_core(core, core_ranks)
    ]
    return [Placement(rank=rank, cpus=_sort_by_position(pool, share)) for rank, share in enumerate(shares)]
