"""How the cores of a machine are divided among ranks: one record for each strategy, in one table."""

from collections.abc import Callable, Mapping, Sequence

from ompbind.cpuset import count
from ompbind.errors import PlanError
from ompbind.machine.model import Level
from ompbind.planning.strategies.core_sequence import Ask, Cut, Division, Field
from ompbind.planning.strategies.packing import Fitted, Sizes, fit
from ompbind.record import Record


class Strategy(Record):
    """One way to divide; `summary` says in a few words what a rank gets.

    A `sized` one gives every rank as many units as asked and leaves the rest idle, an `overlapping` one
    gives units to several ranks, and one with a `level` gives away the domains of that level.
    """

    divide: Callable[[Field, Ask], list[Cut]]
    summary: str
    sized: bool = False
    overlapping: bool = False
    level: Level | None = None


def balanced(field: Field, ask: Ask) -> list[Cut]:
    """Give every rank an equal share of all units, with as few ranks across borders as equal shares allow."""
    units = len(field.units)
    large = -(-units // ask.ranks)
    sizes = Sizes(large=large, smalls=large * ask.ranks - units)
    return [one.cut for one in fit(field, sizes)]


def compact(field: Field, ask: Ask) -> list[Cut]:
    """Pack the ranks from the start of the machine, across as few borders as any ranks of their size."""
    best, next_best = _candidates(field, ask)
    return sorted(one.cut for one in (*best, *next_best[: ask.ranks - len(best)]))


def spread(field: Field, ask: Ask) -> list[Cut]:
    """Put the ranks as far apart as the machine allows, across as few borders as any ranks of their size."""
    best, next_best = _candidates(field, ask)
    return sorted(one.cut for one in (*best, *_thin(field.divisions, next_best, ask.ranks - len(best))))


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


def _each(level: Level) -> Callable[[Field, Ask], list[Cut]]:
    """Make the function that gives every rank one domain of `level`, or an even share of one."""

    def one_domain(field: Field, ask: Ask) -> list[Cut]:
        domains = field.domains(level)
        counts = _host(ask.ranks, [len(domain) for domain in domains])
        return sorted(
            tuple(domain[at] for at in share)
            for domain, mine in zip(domains, counts, strict=True)
            if mine
            for share in balanced(field.narrowed(domain), Ask(ranks=mine))
        )

    return one_domain


def _host(ranks: int, sizes: Sequence[int]) -> list[int]:
    """Return how many ranks each domain hosts: one each, then one more where shares stay the largest.

    There must be as many units as ranks at least.
    """
    counts = [int(i < ranks) for i in range(len(sizes))]
    offers = sorted((-size / mine, i) for i, size in enumerate(sizes) for mine in range(2, size + 1))
    for _, i in offers[: ranks - sum(counts)]:
        counts[i] += 1
    return counts


def cores(field: Field, ask: Ask) -> list[Cut]:
    """Give every rank one core, from the start of the machine."""
    return compact(field, Ask(ranks=ask.ranks, units=1))


def everything(field: Field, ask: Ask) -> list[Cut]:
    """Give every rank everything: the only strategy that overlaps."""
    return [tuple(range(len(field.units)))] * ask.ranks


def _domains(level: Level) -> Strategy:
    return Strategy(divide=_each(level), summary=f"one {level.label}, or an even share of one", level=level)


STRATEGIES: Mapping[str, Strategy] = {
    "balanced": Strategy(
        divide=balanced, summary="an equal share of all cores, across no border that it need not cross"
    ),
    "compact": Strategy(
        divide=compact,
        summary="as many cores as its threads need, or an equal share, packed from the start of the machine",
        sized=True,
    ),
    "spread": Strategy(
        divide=spread,
        summary="as many cores as its threads need, or an equal share, as far from the others as can be",
        sized=True,
    ),
    "nodes": _domains(Level.NODE),
    "packages": _domains(Level.PACKAGE),
    "l3": _domains(Level.L3),
    "l2": _domains(Level.L2),
    "books": _domains(Level.BOOK),
    "drawers": _domains(Level.DRAWER),
    "cores": Strategy(divide=cores, summary="one core"),
    "all": Strategy(divide=everything, summary="everything, together with all other ranks", overlapping=True),
}
"""Every strategy by its name on the command line."""


def check_strategy(field: Field, name: str) -> None:
    """Refuse a strategy that gives away domains of which the machine tells none; raises PlanError."""
    level = STRATEGIES[name].level
    if level is not None and not field.domains(level):
        served = [known for known, one in STRATEGIES.items() if one.level is None or field.domains(one.level)]
        raise PlanError(f"this machine has no {level} domains", hint=f"it can serve {', '.join(served)}")
