"""Equal shares of all cores; as few ranks as possible cross domain boundaries."""

from ompbind.planning.strategies.core_sequence import CoreIndices, CoreSequence
from ompbind.planning.strategies.packing import pack_ranks


def balanced(sequence: CoreSequence, ranks: int, cores_per_rank: int | None = None) -> list[CoreIndices]:
    """Return an equal share of all cores for every rank, with the fewest ranks across domain boundaries.

    Shares differ by at most one core. `cores_per_rank` is ignored: all cores are used.
    """
    cores = len(sequence.core_cpus)
    rank_size = -(-cores // ranks)
    return list(pack_ranks(sequence, rank_size, small_ranks=rank_size * ranks - cores))
