"""What a strategy divides: the cores in topology order, and the domains to which they belong.

A core is never divided here (`allocation` serves more ranks than cores). Cores are numbered by their
index in the sequence, which is the machine's order or the order of the requested NUMA nodes.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from ompbind.cpuset import CpuSet
from ompbind.machine.model import Level, Machine
from ompbind.record import Record

CoreIndices = tuple[int, ...]
"""The cores of one rank or domain, as ascending indices of a sequence."""

PRIORITY = (Level.NODE, Level.PACKAGE, Level.L3, Level.L2, Level.DRAWER, Level.BOOK, Level.DIE, Level.CLUSTER)
"""The levels whose domain boundaries ranks should not cross, most important first; core kinds come last."""

DomainNumbers = tuple[int | None, ...]
"""For every core of a sequence the number of its domain; None for cores in no domain of that level."""


class CoreSequence(Record):
    """The cores to divide, in topology order, and the domains to which they belong.

    `core_cpus` are the usable CPUs of each core. `domain_numbers` has the domain of every core by level,
    `kind_numbers` its core kind. `memory_distances` has for every core the distance of its memory if that is
    remote, otherwise 0.
    """

    core_cpus: tuple[CpuSet, ...]
    domain_numbers: tuple[tuple[Level, DomainNumbers], ...]
    kind_numbers: DomainNumbers
    memory_distances: tuple[int, ...]

    def numbers(self, level: Level) -> DomainNumbers:
        """Return for every core the number of its domain; only None if the machine has no such level."""
        return dict(self.domain_numbers).get(level, (None,) * len(self.core_cpus))

    def domains(self, level: Level) -> tuple[CoreIndices, ...]:
        """Return the cores of each domain of a level; none if the machine has no such level."""
        groups = group_cores(self.numbers(level))
        groups.pop(None, None)
        return tuple(groups.values())


def group_cores(keys: Iterable[object]) -> dict[object, CoreIndices]:
    """Return the cores by their keys, for the keys of all cores, in the order of their first cores."""
    found: dict[object, list[int]] = {}
    for core, key in enumerate(keys):
        found.setdefault(key, []).append(core)
    return {key: tuple(cores) for key, cores in found.items()}


def make_core_sequence(
    machine: Machine, core_cpus: tuple[CpuSet, ...], memory_distances: Mapping[int, int] | None = None
) -> CoreSequence:
    """Return the sequence of cores with these usable CPUs, with their domains on a machine.

    `memory_distances` maps CPUs to the distance of their memory if that is remote.
    """
    distances = memory_distances or {}
    return CoreSequence(
        core_cpus=core_cpus,
        domain_numbers=tuple(
            (level, _number_cores((domain.cpus for domain in machine.at(level)), core_cpus))
            for level in machine.levels
            if level is not Level.CORE
        ),
        kind_numbers=_number_cores((kind.cpus for kind in machine.kinds), core_cpus),
        memory_distances=tuple(distances.get(cpus.first, 0) for cpus in core_cpus),
    )


def _number_cores(sets: Iterable[CpuSet], core_cpus: Sequence[CpuSet]) -> DomainNumbers:
    """Return for every core the index of the set that has its first CPU."""
    firsts = [cpus.first for cpus in core_cpus]
    needed = CpuSet(firsts)
    number_of = {cpu: number for number, cpus in enumerate(sets) for cpu in cpus & needed}
    return tuple(map(number_of.get, firsts))


def make_subsequence(sequence: CoreSequence, indices: CoreIndices) -> CoreSequence:
    """Return the sequence of some of the cores, in the same order."""
    return CoreSequence(
        core_cpus=tuple(sequence.core_cpus[core] for core in indices),
        domain_numbers=tuple(
            (level, tuple(numbers[core] for core in indices)) for level, numbers in sequence.domain_numbers
        ),
        kind_numbers=tuple(sequence.kind_numbers[core] for core in indices),
        memory_distances=tuple(sequence.memory_distances[core] for core in indices),
    )


def find_nearest_memory(sequence: CoreSequence, cores: int) -> CoreIndices:
    """Return the cores with the nearest memory, at least as many as given, in ascending order.

    Cores with remote memory are among them only if there are not enough other cores.
    """
    distances = sequence.memory_distances
    smallest = min(distances)
    nearest = tuple(core for core, distance in enumerate(distances) if distance == smallest)
    if len(nearest) >= cores:
        return nearest
    by_distance = sorted(range(len(distances)), key=distances.__getitem__)
    return tuple(sorted(by_distance[:cores]))


# The domains of every level of a core sequence as core ranges.
#
# The cores of a domain are usually one *range* of indices. For 2 packages with 2 L3s each, and 2 cores in
# each L3:
#
#     core        0   1 | 2   3 | 4   5 | 6   7
#     packages    [0, 4)        | [4, 8)
#     L3s         [0, 2)| [2, 4)| [4, 6)| [6, 8)
#
# A domain whose cores are not adjacent has several ranges.


CoreRange = tuple[int, int]
"""Adjacent cores of a sequence: the first index, and the index after the last one."""


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


def find_levels(sequence: CoreSequence) -> tuple[LevelRanges, ...]:
    """Return the levels that have a range of several cores, largest ranges first.

    Core kinds are among them, unless they partially overlap domains.
    """
    levels = [
        _make_level_ranges(PRIORITY.index(level), numbers) for level, numbers in sequence.domain_numbers
    ]
    kinds = _make_level_ranges(len(PRIORITY), sequence.kind_numbers)
    if not any(_has_partial_overlap(kinds, level) for level in levels):
        levels.append(kinds)
    useful = [level for level in levels if level.ranges and level.largest > 1]
    useful.sort(key=lambda level: (-level.largest, len(level.ranges), level.priority))
    return tuple(useful)


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
    range_at: list[int] = []
    for number, cores in groupby(numbers):
        start, size = len(range_at), len(list(cores))
        range_at.extend([len(ranges)] * size)
        if number is not None:
            ranges.append((start, start + size))
    return LevelRanges(priority=priority, ranges=tuple(ranges), range_at=tuple(range_at))


def split_range(level: LevelRanges, outer: CoreRange) -> list[CoreRange]:
    """Split `outer` at the boundaries of a level; cores in no domain form ranges too."""
    pieces: list[CoreRange] = []
    position, end = outer
    for start, stop in level.ranges[level.range_at[position] : level.range_at[end - 1] + 1]:
        if position < start:
            pieces.append((position, min(start, end)))
        if start < end:
            pieces.append((max(start, position), min(stop, end)))
        position = pieces[-1][1]
    return [*pieces, (position, end)] if position < end else pieces
