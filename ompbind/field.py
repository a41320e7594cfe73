"""What a strategy divides: a line of units, and the domains of every level as spans of it.

A *unit* is what is never divided: the usable CPUs of one core (`crowd` is about more ranks than
cores). Units stand in the order in which one walks the machine, so that a domain is a *span*:
(start, stop), stop excluded. A *cut* is what one rank gets: the positions of its units, in order.
"""

from collections.abc import Iterable, Mapping, Sequence

from ompbind.cpuset import CpuSet
from ompbind.record import Record
from ompbind.topology import Level, Machine

Span = tuple[int, int]
Cut = tuple[int, ...]

PRIORITY = (
    Level.NODE,
    Level.PACKAGE,
    Level.L3,
    Level.L2,
    Level.DRAWER,
    Level.BOOK,
    Level.DIE,
    Level.CLUSTER,
)
"""The levels whose borders ranks should not cross, the most important first; kinds of cores come last."""


class Division(Record):
    """The spans of one level, or of the kinds of cores; `rank` is its place among what matters, 0 first.

    `ahead` is for every unit the number of the span that has it, or else of the next one.
    """

    rank: int
    spans: tuple[Span, ...]
    ahead: tuple[int, ...]

    @property
    def widest(self) -> int:
        """The units of its largest span."""
        return max(stop - start for start, stop in self.spans)


class Field(Record):
    """The line of units to divide; `levels` has the spans of the domains of each level, widest first.

    `divisions` are those that have a span of several units, widest first.
    """

    units: tuple[CpuSet, ...]
    levels: tuple[tuple[Level, tuple[Span, ...]], ...]
    divisions: tuple[Division, ...]

    @property
    def whole(self) -> Span:
        """The span of all units."""
        return 0, len(self.units)

    def spans(self, level: Level) -> tuple[Span, ...]:
        """Return the spans of one level's domains, none when the machine has no such level."""
        return dict(self.levels).get(level, ())


class Ask(Record):
    """How many ranks, and how many units each one gets where the strategy does not decide (else None)."""

    ranks: int
    units: int | None = None


def make_field(machine: Machine, units: tuple[CpuSet, ...]) -> Field:
    """Find the spans of the machine's domains on a line of units that is in machine order."""
    levels = tuple(
        (level, _spans(_owners(domain.cpus for domain in machine.at(level)), units))
        for level in machine.levels
        if level is not Level.CORE
    )
    kinds = _spans(_owners(kind.cpus for kind in machine.kinds), units)
    ranked = [*((PRIORITY.index(level), spans) for level, spans in levels), (len(PRIORITY), kinds)]
    divisions = [_division(rank, spans, len(units)) for rank, spans in ranked if spans]
    divisions.sort(key=lambda one: (-one.widest, len(one.spans), one.rank))
    return Field(units=units, levels=levels, divisions=tuple(one for one in divisions if one.widest > 1))


def _division(rank: int, spans: tuple[Span, ...], units: int) -> Division:
    ahead: list[int] = []
    for number, (_, stop) in enumerate(spans):
        ahead.extend([number] * (stop - len(ahead)))
    ahead.extend([len(spans)] * (units - len(ahead)))
    return Division(rank=rank, spans=spans, ahead=tuple(ahead))


def _owners(sets: Iterable[CpuSet]) -> dict[int, int]:
    """Map every CPU to the number of the set that has it."""
    return {cpu: number for number, cpus in enumerate(sets) for cpu in cpus}


def _spans(owner: Mapping[int, int], units: Sequence[CpuSet]) -> tuple[Span, ...]:
    spans: list[Span] = []
    previous: int | None = None
    for position, unit in enumerate(units):
        current = owner.get(unit.first)
        if current is not None and current == previous:
            spans[-1] = (spans[-1][0], position + 1)
        elif current is not None:
            spans.append((position, position + 1))
        previous = current
    return tuple(spans)


def within(division: Division, outer: Span) -> list[Span]:
    """Return the spans of a division inside `outer`, cut to it, and what lies between them as such too."""
    pieces: list[Span] = []
    at, end = outer
    for start, stop in division.spans[division.ahead[at] : division.ahead[end - 1] + 1]:
        if at < start:
            pieces.append((at, min(start, end)))
        if start < end:
            pieces.append((max(start, at), min(stop, end)))
        at = pieces[-1][1]
    return [*pieces, (at, end)] if at < end else pieces
