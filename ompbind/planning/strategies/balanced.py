"""Equal shares of all cores, across as few borders as equal shares allow."""

from ompbind.planning.strategies.core_sequence import Ask, Cut, Field
from ompbind.planning.strategies.packing import Sizes, fit


def balanced(field: Field, ask: Ask) -> list[Cut]:
    """Give every rank an equal share of all units, with as few ranks across borders as equal shares allow."""
    units = len(field.units)
    large = -(-units // ask.ranks)
    sizes = Sizes(large=large, smalls=large * ask.ranks - units)
    return [one.cut for one in fit(field, sizes)]
