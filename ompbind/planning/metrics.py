"""Measure a plan: idle cores, shared cores, domain boundaries crossed.

The measures depend only on the CPUs of the ranks, so the result of any program can be measured. Lower is
better.
"""

from collections import Counter
from collections.abc import Sequence

from ompbind.cpuset import CpuSet
from ompbind.machine.model import Level, Machine
from ompbind.planning.devices.notes import measure_distances
from ompbind.planning.placing import PRIORITY, count_domains
from ompbind.planning.plan import Plan
from ompbind.record import Record


class Boundary(Record):
    """The domain boundaries of one level; `crossing` ranks are split although they would fit in one domain.

    `touched` is the number of domains that each rank uses, summed up; CPUs in no domain are one more.
    """

    level: Level
    crossing: int
    touched: int


class Metrics(Record):
    """The metrics of one plan, as numbers of cores or ranks.

    `idle` are usable cores without a rank, `shared` cores with several ranks. `smallest` and `largest` are
    the cores of one rank. `mixed` are ranks with cores of several kinds. `borders` has every level with a
    domain of several cores, most important first. `device_distances` has the largest NUMA distance of each
    rank from its devices, None if unknown; empty without devices.
    """

    idle: int
    shared: int
    smallest: int
    largest: int
    mixed: int
    borders: tuple[Boundary, ...]
    device_distances: tuple[int | None, ...] = ()


def measure_plan(plan: Plan) -> Metrics:
    """Measure the CPUs of a plan that compute.

    Idle cores are counted among default CPUs that are not reserved, not avoided and no service CPUs. A group
    of a run has no idle cores: other groups may use them.
    """
    ranks = [placement.compute for placement in plan.placements]
    service = plan.machine.table.whole(plan.used - plan.compute)
    usable = (plan.machine.default_cpus - plan.avoided - service | plan.compute) - plan.reserved
    measured = measure(plan.machine, plan.compute if plan.request.group else usable, ranks)
    return measured.replace(device_distances=measure_distances(plan)) if plan.has_devices else measured


def measure(machine: Machine, usable: CpuSet, ranks: Sequence[CpuSet]) -> Metrics:
    """Measure a plan: `ranks` are the CPUs of each rank, `usable` the CPUs that ranks may use."""
    table, repeats = machine.table, Counter(ranks)  # ranks with equal CPUs are measured once
    rows = {cpus: table.rows(cpus) for cpus in repeats}
    ranks_on = Counter(row for cpus, times in repeats.items() for row in rows[cpus] * times)
    usable_rows = table.rows(usable)
    sizes = [len(own) for own in rows.values()]
    *levels, kinds = count_domains(table, rows.values())
    borders = []
    for level, used in zip(PRIORITY, levels, strict=True):
        numbers = table.column(level)
        if _largest_domain(numbers) < 2:
            continue
        largest = _largest_domain([numbers[row] for row in usable_rows])
        own = [*zip(used, sizes, repeats.values(), strict=True)]
        crossing = sum(times for domains, cores, times in own if domains > 1 and cores <= largest)
        touched = sum(domains * times for domains, _, times in own)
        borders.append(Boundary(level=level, crossing=crossing, touched=touched))
    return Metrics(
        idle=len(set(usable_rows) - ranks_on.keys()),
        shared=sum(times > 1 for times in ranks_on.values()),
        smallest=min(sizes, default=0),
        largest=max(sizes, default=0),
        mixed=sum(times for own, times in zip(kinds, repeats.values(), strict=True) if own > 1),
        borders=tuple(borders),
    )


def _largest_domain(numbers: Sequence[int | None]) -> int:
    return max(Counter(number for number in numbers if number is not None).values(), default=0)
