"""The cores of the machine that --reserve-total takes before the strategy divides the others."""

from itertools import cycle

from ompbind.cpuset import CpuSet, count, union
from ompbind.errors import PlanError
from ompbind.machine.model import Level
from ompbind.planning.cpu_pool import CpuPool, find_siblings
from ompbind.planning.strategies.core_sequence import make_core_sequence


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
