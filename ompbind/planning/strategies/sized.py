"""Ranks of a given size, next to each other or far apart; the rest of the cores is idle."""

from collections.abc import Sequence

from ompbind.cpuset import count
from ompbind.errors import PlanError
from ompbind.planning.strategies.core_sequence import CoreIndices, CoreSequence, Division
from ompbind.planning.strategies.packing import fit


def compact(sequence: CoreSequence, ranks: int, units: int | None) -> list[CoreIndices]:
    """Pack the ranks from the start of the machine, across as few borders as any ranks of their size."""
    best, next_best = _candidates(sequence, ranks, units)
    return sorted([*best, *next_best[: ranks - len(best)]])


def spread(sequence: CoreSequence, ranks: int, units: int | None) -> list[CoreIndices]:
    """Put the ranks as far apart as the machine allows, across as few borders as any ranks of their size."""
    best, next_best = _candidates(sequence, ranks, units)
    return sorted([*best, *_thin(sequence.divisions, next_best, ranks - len(best))])


def cores(sequence: CoreSequence, ranks: int, units: int | None) -> list[CoreIndices]:
    """Give every rank one core, from the start of the machine."""
    return compact(sequence, ranks, 1)


def _candidates(
    sequence: CoreSequence, ranks: int, units: int | None
) -> tuple[list[CoreIndices], list[CoreIndices]]:
    """Return where ranks must be to cross the fewest borders, and where the others may be."""
    size = _size(len(sequence.units), ranks, units)
    is_hybrid = len(set(sequence.kinds)) > 1
    least = sorted(fit(sequence, size, forgiving=is_hybrid).values())[-ranks]
    held = fit(sequence, size, forgiving=is_hybrid, least=least)
    return [indices for indices, score in held.items() if score > least], [
        indices for indices, score in held.items() if score == least
    ]


def _thin(divisions: Sequence[Division], places: Sequence[CoreIndices], ranks: int) -> list[CoreIndices]:
    """Choose so many of the places that even those next to each other are far apart, level by level.

    The widest domains of which there is one for each rank have no more than one, and wider ones equally many.
    """
    if not divisions or ranks in (0, len(places)):
        return [places[i * len(places) // ranks] for i in range(ranks)]
    groups = _grouped(divisions[0], places)
    enough = next((one for one in divisions if len(_grouped(one, places)) >= ranks), None)
    rooms = [len(_grouped(enough, group)) if enough and ranks > 1 else len(group) for group in groups]
    return [
        indices
        for group, mine in zip(groups, _deal(ranks, rooms), strict=True)
        for indices in _thin(divisions[1:], group, mine)
    ]


def _grouped(division: Division, places: Sequence[CoreIndices]) -> list[list[CoreIndices]]:
    """Group places by the span in which they begin, those in no span together."""
    starts = [start for start, _ in division.spans] + [len(division.ahead)]
    groups: dict[tuple[int, bool], list[CoreIndices]] = {}
    for indices in places:
        at = division.ahead[indices[0]]
        groups.setdefault((at, starts[at] <= indices[0]), []).append(indices)
    return list(groups.values())


def _deal(ranks: int, room: Sequence[int]) -> list[int]:
    """Deal ranks one by one to whoever has fewest, never past its room, which must be enough."""
    counts = [0] * len(room)
    while left := ranks - sum(counts):
        fewest = min(mine for mine, most in zip(counts, room, strict=True) if mine < most)
        open_ = [i for i, mine in enumerate(counts) if mine == fewest and mine < room[i]]
        for i in open_[:left]:
            counts[i] += 1
    return counts


def _size(cores: int, ranks: int, units: int | None) -> int:
    """Return the units of every rank, by request or else the largest equal share."""
    size = units or cores // ranks
    if size * ranks > cores:
        fewer = f"at most {count(cores // size, 'rank')}, or " if cores >= size else ""
        there = f"{'is' if cores == 1 else 'are'} {cores}"
        raise PlanError(
            f"{count(ranks, 'rank')} of {count(size, 'core')} need {size * ranks}, there {there}",
            hint=f"ask for {fewer}fewer threads with -t",
        )
    return size
