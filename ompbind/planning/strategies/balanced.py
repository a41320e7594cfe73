"""Equal shares of all cores, across as few borders as equal shares allow."""

from ompbind.planning.strategies.core_sequence import Cut, Field
from ompbind.planning.strategies.packing import fit


def balanced(field: Field, ranks: int, units: int | None = None) -> list[Cut]:
    """Give every rank an equal share of all units, with as few ranks across borders as equal shares allow."""
    large = -(-len(field.units) // ranks)
    return list(fit(field, large, smalls=large * ranks - len(field.units)))
