"""Equal shares of all cores: one after the other, or packed into domains if the machine has several."""

from ompbind.planning.strategies.core_sequence import CoreIndices, CoreSequence
from ompbind.planning.strategies.packing import pack_ranks
from ompbind.planning.strategies.shapes import RankSizes


def divide_equally(sequence: CoreSequence, ranks: int) -> list[CoreIndices]:
    """Return an equal share of all cores for every rank, with the fewest ranks across domain boundaries."""
    cores = len(sequence.core_cpus)
    rank_size = -(-cores // ranks)
    small_ranks = rank_size * ranks - cores
    if not _has_boundaries(sequence):
        large_ranks = ranks - small_ranks
        starts = [rank * rank_size - max(0, rank - large_ranks) for rank in range(ranks + 1)]
        return [tuple(range(starts[rank], starts[rank + 1])) for rank in range(ranks)]
    sizes = RankSizes(large=rank_size, small_ranks=small_ranks)
    return list(pack_ranks(sequence, sizes, least_reach=True))


def _has_boundaries(sequence: CoreSequence) -> bool:
    """Return whether a domain or a kind of cores has several of the cores, but not all."""
    numberings = (*(numbers for _, numbers in sequence.domain_numbers), sequence.kind_numbers)
    return any(len(set(numbers)) not in (1, len(numbers)) for numbers in numberings)
