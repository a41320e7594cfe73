"""Equal shares of all cores, across as few borders as equal shares allow."""

from ompbind.planning.strategies.core_sequence import CoreIndices, CoreSequence
from ompbind.planning.strategies.packing import fit


def balanced(sequence: CoreSequence, ranks: int, units: int | None = None) -> list[CoreIndices]:
    """Give every rank an equal share of all units, with as few ranks across borders as equal shares allow."""
    large = -(-len(sequence.units) // ranks)
    return list(fit(sequence, large, smalls=large * ranks - len(sequence.units)))
