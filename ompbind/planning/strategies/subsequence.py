"""Sequences of some of the cores, for example of the cores with the nearest memory."""

from ompbind.planning.strategies.core_sequence import CoreIndices, CoreSequence


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
