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

from collections.abc import Sequence

from ompbind.cpuset import EMPTY, CpuSet, union
from ompbind.planning.allocation_checks import check_overlap, check_placements
from ompbind.planning.allocation_errors import no_core_left_error
from ompbind.planning.allowed_memory import measure_remote_memory
from ompbind.planning.cpu_pool import CpuPool, find_siblings, find_usable_cpus, sort_by_position
from ompbind.planning.oversubscription import place_on_shared_cores
from ompbind.planning.plan import Placement
from ompbind.planning.requested_cores import find_requested, put_compute_first
from ompbind.planning.reserved_cores import reserve_cores
from ompbind.planning.service_cpus import take_service_cpus
from ompbind.planning.strategies.core_sequence import CoreSequence, make_core_sequence
from ompbind.planning.strategies.domains import sort_by_node
from ompbind.planning.strategies.shares import RequestedCores
from ompbind.planning.strategies.subsequence import make_subsequence
from ompbind.planning.strategies.table import STRATEGIES, check_strategy


def make_placements(pool: CpuPool) -> list[Placement]:
    """Return a placement for every rank, with its CPUs, its service CPUs and its reserved CPUs.

    Raises PlanError or MaskError if a rank would have no core, or would use or reserve CPUs of another rank,
    or would have more threads than --cores allows.
    """
    if pool.parts:
        check_overlap(pool)
    if pool.request.devices:
        from ompbind.planning.devices.assignment import add_devices  # noqa: PLC0415 - door: devices

        pool = add_devices(pool)
    placements = _place_parts(pool) if pool.parts else _place_by_strategy(pool)
    if pool.devices:
        pairs = zip(placements, pool.devices, strict=True)
        placements = [placement.replace(devices=devices) for placement, devices in pairs]
    request = pool.request
    if request.has_service_cpus:
        overlapping = not pool.parts and STRATEGIES[request.strategy].overlapping
        placements = take_service_cpus(request, placements, overlapping=overlapping)
    if pool.parts or request.reserve or request.reserve_total or (request.cores and request.threads):
        check_placements(pool, placements)
    return placements


def _place_parts(pool: CpuPool) -> list[Placement]:
    """Give every rank its part of the mask, without cores that are reserved and CPUs that --smt excludes."""
    reserved_each, remainder = divmod(pool.request.reserve_total, len(pool.parts))
    placements = []
    for rank, part in enumerate(pool.parts):
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
    strategy, requested = STRATEGIES[request.strategy], None
    if strategy.by_os_number and request.nodes is None:  # nodes that the request names keep its order
        core_cpus = sort_by_node(pool.machine, core_cpus)
    if request.reserve_total:
        core_cpus, reserved = reserve_cores(pool, core_cpus)
    distances = {} if request.names_cpus else measure_remote_memory(pool.machine)
    sequence = make_core_sequence(pool.machine, core_cpus, distances)
    check_strategy(sequence, request.strategy)
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
        allocations = STRATEGIES[request.strategy].divide(sequence, ranks, requested)
    if request.service_cores and not requested:
        allocations = [put_compute_first(sequence, cores, request) for cores in allocations]
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
    part = tuple(cpu for cpu in pool.parts[rank] if cpu in used) if pool.parts else ()
    named_cpus = pool.parts[rank] if pool.parts else pool.position
    service = find_siblings(pool.available, core_cpus[used_cores:kept_cores])
    return Placement(
        rank=rank,
        cpus=part or sort_by_position(pool, used),
        reserved=find_siblings(pool.available, core_cpus[kept_cores:]),
        service_cpus=CpuSet(cpu for cpu in service if cpu in named_cpus) if service else EMPTY,
    )
