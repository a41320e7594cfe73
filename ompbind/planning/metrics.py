"""Measure a plan: idle cores, shared cores, domain boundaries crossed.

The measures depend only on the CPUs of the ranks, so the result of any program can be measured. Lower is
better.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from ompbind.cpuset import CpuSet
from ompbind.machine.model import Level, Machine
from ompbind.planning.devices.notes import measure_distances
from ompbind.planning.placing import PRIORITY
from ompbind.planning.plan import Plan
from ompbind.record import Record


class Boundary(Record):
    """The domain boundaries of one level; `crossing` ranks are split although they would fit in one domain.

    `touched` is the number of domains that a rank uses, summed over all ranks. CPUs in no domain count as
    one domain more.
    """

    level: Level
    crossing: int
    touched: int


class Metrics(Record):
    """The metrics of one plan.

    `idle` are usable cores without a rank, `shared` cores with several ranks. `smallest` and `largest` are
    the cores of the smallest and of the largest rank. `mixed` are ranks with cores of several kinds.
    `borders` has every level with a domain of several cores, most important first. `device_distances` has
    the largest NUMA distance of each rank from its devices, None if unknown; empty without devices.
    """

    idle: int
    shared: int
    smallest: int
    largest: int
    mixed: int
    borders: tuple[Boundary, ...]
    device_distances: tuple[int | None, ...] = ()

    @property
    def imbalance(self) -> int:
        """How many cores more the largest rank has than the smallest one."""
        return self.largest - self.smallest

    @property
    def sort_key(self) -> tuple[int, ...]:
        """The key by which plans are compared, most important number first; the lower key is better."""
        crossings = (boundary.crossing for boundary in self.borders)
        touched = (boundary.touched for boundary in self.borders)
        return self.shared, self.idle, self.imbalance, *crossings, *touched, self.mixed


def measure_plan(plan: Plan) -> Metrics:
    """Measure the CPUs of a plan that compute.

    Idle cores are counted among default CPUs that are not reserved, not avoided and no service CPUs. A group
    of a run has no idle cores: other groups may use them.
    """
    ranks = [placement.compute for placement in plan.placements]
    service = plan.machine.table.whole(plan.used - plan.compute)
    usable = (plan.machine.default_cpus - plan.avoided - service | plan.compute) - plan.reserved
    measured = measure(plan.machine, plan.compute if plan.request.group else usable, ranks)
    if not plan.has_devices:
        return measured
    return measured.replace(device_distances=measure_distances(plan))


def measure(machine: Machine, usable: CpuSet, ranks: Sequence[CpuSet]) -> Metrics:
    """Measure a plan: `ranks` are the CPUs of each rank, `usable` the CPUs that ranks may use."""
    core_of = machine.table.core_of
    repeats = Counter(ranks)  # ranks with equal CPUs are measured once
    cores = {cpus: {core_of[cpu] for cpu in cpus} for cpus in repeats}
    ranks_on: Counter[int] = Counter()
    for cpus, times in repeats.items():
        ranks_on.update(dict.fromkeys(cores[cpus], times))
    sizes = [len(used) for used in cores.values()]
    kinds = {cpu: number for number, kind in enumerate(machine.kinds) for cpu in kind.cpus}
    usable_cores = {core_of[cpu]: cpu for cpu in usable}
    sizes_and_repeats = {cpus: (len(cores[cpus]), times) for cpus, times in repeats.items()}
    usable_cpus = list(usable_cores.values())
    firsts = CpuSet(core.cpus.first for core in machine.at(Level.CORE))
    return Metrics(
        idle=len(usable_cores.keys() - ranks_on.keys()),
        shared=sum(times > 1 for times in ranks_on.values()),
        smallest=min(sizes, default=0),
        largest=max(sizes, default=0),
        mixed=sum(times for cpus, times in repeats.items() if len({kinds.get(cpu) for cpu in cpus}) > 1),
        borders=tuple(
            _measure_boundary(machine, level, usable_cpus, sizes_and_repeats)
            for level in PRIORITY
            if any(len(domain.cpus & firsts) > 1 for domain in machine.at(level))
        ),
    )


def _measure_boundary(
    machine: Machine, level: Level, usable: Sequence[int], ranks: Mapping[CpuSet, tuple[int, int]]
) -> Boundary:
    """Count the ranks across boundaries of one level.

    `usable` has one CPU of each usable core. `ranks` maps CPUs to (cores, number of ranks with these CPUs).
    """
    domain_of = machine.table.number_of(level)
    largest = max(Counter(domain_of[cpu] for cpu in usable if cpu in domain_of).values(), default=0)
    domains = {cpus: {domain_of.get(cpu) for cpu in cpus} for cpus in ranks}
    return Boundary(
        level=level,
        crossing=sum(
            times for cpus, (cores, times) in ranks.items() if len(domains[cpus]) > 1 and cores <= largest
        ),
        touched=sum(len(domains[cpus]) * times for cpus, (_, times) in ranks.items()),
    )
