"""Equal shares of all cores; ranks cross as few domain boundaries, and use as few domains, as possible."""

from ompbind.planning.strategies.core_sequence import CoreIndices, CoreSequence
from ompbind.planning.strategies.packing import pack_ranks
from ompbind.planning.strategies.shapes import RankSizes


def balanced(sequence: CoreSequence, ranks: int, cores_per_rank: int | None = None) -> list[CoreIndices]:
    """Return an equal share of all cores for every rank, with the fewest ranks across domain boundaries.

    Among equally good shares, ranks use the fewest domains. Shares differ by at most one core.
    `cores_per_rank` is ignored: all cores are used.
    """
    cores = len(sequence.core_cpus)
    rank_size = -(-cores // ranks)
    sizes = RankSizes(large=rank_size, small_ranks=rank_size * ranks - cores)
    return list(pack_ranks(sequence, sizes, least_reach=True))
