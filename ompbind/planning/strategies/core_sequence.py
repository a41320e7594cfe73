"""What a strategy divides: the cores in topology order, and the domains of every level as core ranges.

A core is never divided here (`oversubscription` serves more ranks than cores). Cores are numbered by their
index in the sequence, which is the machine's order or the order of the requested NUMA nodes. So the cores of
a domain are usually one *range* of indices. For 2 packages with 2 L3s each, and 2 cores in each L3:

    core        0   1 | 2   3 | 4   5 | 6   7
    packages    [0, 4)        | [4, 8)
    L3s         [0, 2)| [2, 4)| [4, 6)| [6, 8)

A domain whose cores are not adjacent has several ranges.
"""

from __future__ import annotations

from ompbind.cpuset import CpuSet
from ompbind.machine.model import Level, Machine
from ompbind.record import Record

TYPE_CHECKING = False  # importing typing takes time: see record.py
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

CoreRange = tuple[int, int]
"""Adjacent cores of a sequence: the first index, and the index after the last one."""

CoreIndices = tuple[int, ...]
"""The cores of one rank or domain, as ascending indices of a sequence."""

PRIORITY = (Level.NODE, Level.PACKAGE, Level.L3, Level.L2, Level.DRAWER, Level.BOOK, Level.DIE, Level.CLUSTER)
"""The levels whose domain boundaries ranks should not cross, most important first; core kinds come last."""


class LevelRanges(Record):
    """The core ranges of one level, or of the core kinds, in ascending order.

    `priority` is the index of the level in PRIORITY, 0 is the most important. `range_at` has for every core
    the index of the range that holds it, or else of the next range.
    """

    priority: int
    ranges: tuple[CoreRange, ...]
    range_at: tuple[int, ...]

    @property
    def largest(self) -> int:
        """The number of cores in the largest range."""
        return max(stop - start for start, stop in self.ranges)


DomainNumbers = tuple[int | None, ...]
"""For every core of a sequence the number of its domain; None for cores in no domain of that level."""


class CoreSequence(Record):
    """The cores to divide, in topology order, and the domains to which they belong.

    `core_cpus` are the usable CPUs of each core. `domain_numbers` has the domain of every core by level,
    `kind_numbers` its core kind. `levels` are the levels that have a range of several cores, largest ranges
    first; core kinds are among them, unless they partially overlap domains. `memory_distances` has for every
    core the distance of its memory if that is remote, otherwise 0.
    """

    core_cpus: tuple[CpuSet, ...]
    domain_numbers: tuple[tuple[Level, DomainNumbers], ...]
    kind_numbers: DomainNumbers
    levels: tuple[LevelRanges, ...]
    memory_distances: tuple[int, ...]

    def numbers(self, level: Level) -> DomainNumbers:
        """Return for every core the number of its domain; only None if the machine has no such level."""
        return dict(self.domain_numbers).get(level, (None,) * len(self.core_cpus))

    def domains(self, level: Level) -> tuple[CoreIndices, ...]:
        """Return the cores of each domain of a level; none if the machine has no such level."""
        found: dict[int, list[int]] = {}
        for core, number in enumerate(self.numbers(level)):
            if number is not None:
                found.setdefault(number, []).append(core)
        return tuple(map(tuple, found.values()))


def make_core_sequence(
    machine: Machine, core_cpus: tuple[CpuSet, ...], memory_distances: Mapping[int, int] | None = None
) -> CoreSequence:
    """Return the sequence of cores with these usable CPUs, with their domains on a machine.

    `memory_distances` maps CPUs to the distance of their memory if that is remote.
    """
    domain_numbers = (
        (level, _number_cores((domain.cpus for domain in machine.at(level)), core_cpus))
        for level in machine.levels
        if level is not Level.CORE
    )
    kind_numbers = _number_cores((kind.cpus for kind in machine.kinds), core_cpus)
    distances = tuple((memory_distances or {}).get(cpus.first, 0) for cpus in core_cpus)
    return make_sequence(core_cpus, tuple(domain_numbers), kind_numbers, distances)


def _number_cores(sets: Iterable[CpuSet], core_cpus: Sequence[CpuSet]) -> DomainNumbers:
    """Return for every core the index of the set that has its first CPU."""
    number_of = {cpu: number for number, cpus in enumerate(sets) for cpu in cpus}
    return tuple(number_of.get(cpus.first) for cpus in core_cpus)


def make_sequence(
    core_cpus: tuple[CpuSet, ...],
    domain_numbers: tuple[tuple[Level, DomainNumbers], ...],
    kind_numbers: DomainNumbers,
    memory_distances: tuple[int, ...],
) -> CoreSequence:
    """Return the sequence of cores with these domains, core kinds and memory, each as in `CoreSequence`."""
    levels = [_make_level_ranges(PRIORITY.index(level), numbers) for level, numbers in domain_numbers]
    kinds = _make_level_ranges(len(PRIORITY), kind_numbers)
    if not any(_has_partial_overlap(kinds, level) for level in levels):
        levels.append(kinds)
    useful = [level for level in levels if level.ranges and level.largest > 1]
    useful.sort(key=lambda level: (-level.largest, len(level.ranges), level.priority))
    return CoreSequence(
        core_cpus=core_cpus,
        domain_numbers=domain_numbers,
        kind_numbers=kind_numbers,
        levels=tuple(useful),
        memory_distances=memory_distances,
    )


def _has_partial_overlap(level: LevelRanges, other: LevelRanges) -> bool:
    """Return whether a range of `level` starts or stops inside a range of `other` that does not hold it."""
    for start, stop in level.ranges:
        for bound in (start, stop):
            index = other.range_at[bound] if bound < len(other.range_at) else len(other.ranges)
            low, high = other.ranges[index] if index < len(other.ranges) else (bound, bound)
            if low < bound and not (low <= start and stop <= high):
                return True
    return False


def _make_level_ranges(priority: int, numbers: DomainNumbers) -> LevelRanges:
    """Return the ranges of adjacent cores that have the same domain number."""
    ranges: list[CoreRange] = []
    previous: int | None = None
    for core, number in enumerate(numbers):
        if number is not None and number == previous:
            ranges[-1] = (ranges[-1][0], core + 1)
        elif number is not None:
            ranges.append((core, core + 1))
        previous = number
    range_at: list[int] = []
    for index, (_, stop) in enumerate(ranges):
        range_at.extend([index] * (stop - len(range_at)))
    range_at.extend([len(ranges)] * (len(numbers) - len(range_at)))
    return LevelRanges(priority=priority, ranges=tuple(ranges), range_at=tuple(range_at))
