"""What a strategy divides: the cores in topology order, and the domains to which they belong.

A core is never divided here (`allocation` serves more ranks than cores). Cores are numbered by their
index in the sequence, which is the machine's order or the order of the requested NUMA nodes.
"""

from collections.abc import Iterable, Mapping, Sequence

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
    number_of = {cpu: number for number, cpus in enumerate(sets) for cpu in cpus}
    return tuple(number_of.get(cpus.first) for cpus in core_cpus)


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
