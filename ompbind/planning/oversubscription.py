"""More ranks than cores: ranks share as few cores as possible, each with hardware threads of its own.

Every core gets one rank before any core gets two, and no rank has CPUs of two cores.
"""

from collections.abc import Sequence

from ompbind.cpuset import EMPTY, CpuSet, count
from ompbind.errors import PlanError
from ompbind.planning.allocation_errors import no_core_left_error, too_many_ranks_error
from ompbind.planning.cpu_pool import (
    CpuPool,
    find_siblings,
    find_usable_cpus,
    limit_cpus,
    make_cpu_pool,
    sort_by_position,
)
from ompbind.planning.occupancy_text import OCCUPIED_HINT
from ompbind.planning.plan import Placement


def place_on_shared_cores(pool: CpuPool, core_cpus: tuple[CpuSet, ...], ranks: int) -> list[Placement]:
    """Place more ranks than cores; `core_cpus` are the usable CPUs of each core."""
    _check_free_cores(pool, ranks, len(core_cpus))
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
    limit = pool.request.smt if isinstance(pool.request.smt, int) else None
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
    shares = [
        share
        for core, core_ranks in zip(used, counts, strict=True)
        for share in _split_core(core, core_ranks)
    ]
    return [Placement(rank=rank, cpus=sort_by_position(pool, share)) for rank, share in enumerate(shares)]


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


def _split_core(cpus: CpuSet, ranks: int) -> list[CpuSet]:
    """Split the CPUs of one core evenly among ranks, in order."""
    numbers = tuple(cpus)
    bounds = [i * len(numbers) // ranks for i in range(ranks + 1)]
    return [CpuSet(numbers[bounds[i] : bounds[i + 1]]) for i in range(ranks)]
