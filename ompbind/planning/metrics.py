"""How good a placement is, in numbers that anyone can check: cores idle, cores shared, borders crossed.

They are counted from the CPUs of the ranks alone, whichever program placed them. Fewer is better everywhere.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from ompbind.cpuset import CpuSet
from ompbind.machine.model import Level, Machine, index_by_cpu
from ompbind.planning.plan import Plan
from ompbind.planning.strategies.core_sequence import PRIORITY
from ompbind.record import Record


class Boundary(Record):
    """One level: how many ranks cross its borders although one of its domains has as many cores as they.

    `touched` is the number of domains that a rank has CPUs of, summed over all ranks; CPUs in none of them
    count as those of one more.
    """

    level: Level
    crossing: int
    touched: int


class Measures(Record):
    """Of one placement: cores without and with several ranks, cores of the ranks, and what they cross.

    `mixed` are the ranks with cores of several kinds; `borders` has every level whose domains have several
    cores, the most important first.
    """

    idle: int
    shared: int
    smallest: int
    largest: int
    mixed: int
    borders: tuple[Boundary, ...]

    @property
    def imbalance(self) -> int:
        """Cores that the largest rank has more than the smallest."""
        return self.largest - self.smallest

    @property
    def order(self) -> tuple[int, ...]:
        """What placements are compared by, the most important first: crossings and reach level by level."""
        crossings = (border.crossing for border in self.borders)
        touched = (border.touched for border in self.borders)
        return self.shared, self.idle, self.imbalance, *crossings, *touched, self.mixed


def measure_plan(plan: Plan) -> Measures:
    """Measure a plan against all CPUs that are used without being named, less those that are reserved."""
    usable = (plan.machine.ordinary - plan.avoided | plan.used) - plan.reserved
    return measure(plan.machine, usable, [one.cpuset for one in plan.placements])


def measure(machine: Machine, usable: CpuSet, ranks: Sequence[CpuSet]) -> Measures:
    """Measure the placement of ranks on a machine of which these CPUs were there to be used."""
    core_of = index_by_cpu(machine.at(Level.CORE))
    alike = Counter(ranks)
    cores = {cpus: {core_of[cpu] for cpu in cpus} for cpus in alike}
    owners: Counter[int] = Counter()
    for cpus, times in alike.items():
        owners.update(dict.fromkeys(cores[cpus], times))
    sizes = [len(mine) for mine in cores.values()]
    kinds = {cpu: number for number, kind in enumerate(machine.kinds) for cpu in kind.cpus}
    room = {core_of[cpu]: cpu for cpu in usable}
    sized = {cpus: (len(cores[cpus]), times) for cpus, times in alike.items()}
    return Measures(
        idle=len(room.keys() - owners.keys()),
        shared=sum(times > 1 for times in owners.values()),
        smallest=min(sizes, default=0),
        largest=max(sizes, default=0),
        mixed=sum(times for cpus, times in alike.items() if len({kinds.get(cpu) for cpu in cpus}) > 1),
        borders=tuple(_border(machine, level, list(room.values()), sized) for level in _levels(machine)),
    )


def _levels(machine: Machine) -> list[Level]:
    """Return the levels of which a domain has more than one core, the most important first."""
    firsts = CpuSet(core.cpus.first for core in machine.at(Level.CORE))
    several = (any(len(domain.cpus & firsts) > 1 for domain in machine.at(level)) for level in PRIORITY)
    return [level for level, yes in zip(PRIORITY, several, strict=True) if yes]


def _border(
    machine: Machine, level: Level, room: Sequence[int], ranks: Mapping[CpuSet, tuple[int, int]]
) -> Boundary:
    """Count crossings of one level; `room` is a CPU of each usable core, `ranks` have (cores, how often)."""
    owner = index_by_cpu(machine.at(level))
    largest = max(Counter(owner[cpu] for cpu in room if cpu in owner).values(), default=0)
    found = {cpus: {owner.get(cpu) for cpu in cpus} for cpus in ranks}
    return Boundary(
        level=level,
        crossing=sum(
            times for cpus, (cores, times) in ranks.items() if len(found[cpus]) > 1 and cores <= largest
        ),
        touched=sum(len(found[cpus]) * times for cpus, (_, times) in ranks.items()),
    )
