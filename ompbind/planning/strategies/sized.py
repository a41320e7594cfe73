"""Ranks of a given size, next to each other or far apart; the rest of the cores is idle."""

from collections.abc import Sequence

from ompbind.cpuset import count
from ompbind.errors import PlanError
from ompbind.planning.strategies.core_sequence import Ask, Cut, Division, Field
from ompbind.planning.strategies.packing import Fitted, Sizes, fit


def compact(field: Field, ask: Ask) -> list[Cut]:
    """Pack the ranks from the start of the machine, across as few borders as any ranks of their size."""
    best, next_best = _candidates(field, ask)
    return sorted(one.cut for one in (*best, *next_best[: ask.ranks - len(best)]))


def spread(field: Field, ask: Ask) -> list[Cut]:
    """Put the ranks as far apart as the machine allows, across as few borders as any ranks of their size."""
    best, next_best = _candidates(field, ask)
    return sorted(one.cut for one in (*best, *_thin(field.divisions, next_best, ask.ranks - len(best))))


def cores(field: Field, ask: Ask) -> list[Cut]:
    """Give every rank one core, from the start of the machine."""
    return compact(field, Ask(ranks=ask.ranks, units=1))


def _candidates(field: Field, ask: Ask) -> tuple[list[Fitted], list[Fitted]]:
    """Return where ranks must be to cross the fewest borders, and where the others may be."""
    sizes = Sizes(large=_size(field, ask), forgiving=field.is_hybrid)
    least = sorted(one.worth for one in fit(field, sizes))[-ask.ranks]
    held = fit(field, sizes, least)
    return [one for one in held if one.worth > least], [one for one in held if one.worth == least]


def _thin(divisions: Sequence[Division], places: Sequence[Fitted], ranks: int) -> list[Fitted]:
    """Choose so many of the places that even those next to each other are far apart, level by level.

    The widest domains of which there is one for each rank have no more than one, and wider ones equally many.
    """
    if not divisions or ranks in (0, len(places)):
        return [places[i * len(places) // ranks] for i in range(ranks)]
    groups = _grouped(divisions[0], places)
    enough = next((one for one in divisions if len(_grouped(one, places)) >= ranks), None)
    rooms = [len(_grouped(enough, group)) if enough and ranks > 1 else len(group) for group in groups]
    return [
        one
        for group, mine in zip(groups, _deal(ranks, rooms), strict=True)
        for one in _thin(divisions[1:], group, mine)
    ]


def _grouped(division: Division, places: Sequence[Fitted]) -> list[list[Fitted]]:
    """Group places by the span in which they begin, those in no span together."""
    starts = [start for start, _ in division.spans] + [len(division.ahead)]
    groups: dict[tuple[int, bool], list[Fitted]] = {}
    for one in places:
        at = division.ahead[one.cut[0]]
        groups.setdefault((at, starts[at] <= one.cut[0]), []).append(one)
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


def _size(field: Field, ask: Ask) -> int:
    """Return the units of every rank, by request or else the largest equal share."""
    size = ask.units or len(field.units) // ask.ranks
    if size * ask.ranks > len(field.units):
        cores = len(field.units)
        fewer = f"at most {count(cores // size, 'rank')}, or " if cores >= size else ""
        there = f"{'is' if cores == 1 else 'are'} {cores}"
        raise PlanError(
            f"{count(ask.ranks, 'rank')} of {count(size, 'core')} need {size * ask.ranks}, there {there}",
            hint=f"ask for {fewer}fewer threads with -t",
        )
    return size
