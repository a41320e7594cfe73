"""What a strategy divides: a line of units, and the domains of every level on it.

A *unit* is what is never divided: the usable CPUs of one core (`oversubscription` is about more ranks than
cores). Units stand in the order in which one walks the machine, or that of the nodes asked for, so that
a domain is a *span* as a rule: (start, stop), stop excluded. A *cut* is what one rank gets: the positions
of its units, in order.
"""

from collections.abc import Iterable, Sequence

from ompbind.cpuset import CpuSet
from ompbind.machine.model import Level, Machine
from ompbind.record import Record

Span = tuple[int, int]
CoreIndices = tuple[int, ...]

PRIORITY = (Level.NODE, Level.PACKAGE, Level.L3, Level.L2, Level.DRAWER, Level.BOOK, Level.DIE, Level.CLUSTER)
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


Owners = tuple[int | None, ...]
"""For every unit the number of the domain that has it, None where none has."""


class CoreSequence(Record):
    """The line of units to divide; `owners` tell of the domains of each level, `kinds` of the kinds of cores.

    `divisions` are those with a span of several units, widest first; kinds are one of them, unless they cut
    through domains.
    """

    units: tuple[CpuSet, ...]
    owners: tuple[tuple[Level, Owners], ...]
    kinds: Owners
    divisions: tuple[Division, ...]

    @property
    def whole(self) -> Span:
        """The span of all units."""
        return 0, len(self.units)

    def domains(self, level: Level) -> tuple[CoreIndices, ...]:
        """Return the positions of each domain of a level, none when the machine has no such level."""
        found: dict[int, list[int]] = {}
        for at, number in enumerate(dict(self.owners).get(level, ())):
            if number is not None:
                found.setdefault(number, []).append(at)
        return tuple(map(tuple, found.values()))

    def narrowed(self, indices: CoreIndices) -> "CoreSequence":
        """Return the field of some of the units, in the same order."""
        return _make(
            tuple(self.units[at] for at in indices),
            tuple((level, tuple(owners[at] for at in indices)) for level, owners in self.owners),
            tuple(self.kinds[at] for at in indices),
        )


def make_core_sequence(machine: Machine, units: tuple[CpuSet, ...]) -> CoreSequence:
    """Find the machine's domains on a line of units."""
    owners = (
        (level, _owners((domain.cpus for domain in machine.at(level)), units))
        for level in machine.levels
        if level is not Level.CORE
    )
    return _make(units, tuple(owners), _owners((kind.cpus for kind in machine.kinds), units))


def _owners(sets: Iterable[CpuSet], units: Sequence[CpuSet]) -> Owners:
    owner = {cpu: number for number, cpus in enumerate(sets) for cpu in cpus}
    return tuple(owner.get(unit.first) for unit in units)


def _make(units: tuple[CpuSet, ...], owners: tuple[tuple[Level, Owners], ...], kinds: Owners) -> CoreSequence:
    levels = [_division(PRIORITY.index(level), numbers) for level, numbers in owners]
    strength = _division(len(PRIORITY), kinds)
    if not any(_cuts(strength, level) for level in levels):
        levels.append(strength)
    divisions = [one for one in levels if one.spans and one.widest > 1]
    divisions.sort(key=lambda one: (-one.widest, len(one.spans), one.rank))
    return CoreSequence(units=units, owners=owners, kinds=kinds, divisions=tuple(divisions))


def _cuts(one: Division, other: Division) -> bool:
    """Tell whether a span of one division begins or ends inside of one of the other that does not hold it."""
    for start, stop in one.spans:
        for edge in (start, stop):
            at = other.ahead[edge] if edge < len(other.ahead) else len(other.spans)
            low, high = other.spans[at] if at < len(other.spans) else (edge, edge)
            if low < edge and not (low <= start and stop <= high):
                return True
    return False


def _division(rank: int, owners: Owners) -> Division:
    """Make the division of what owns units: runs of units with one owner, as spans."""
    spans: list[Span] = []
    previous: int | None = None
    for position, current in enumerate(owners):
        if current is not None and current == previous:
            spans[-1] = (spans[-1][0], position + 1)
        elif current is not None:
            spans.append((position, position + 1))
        previous = current
    ahead: list[int] = []
    for number, (_, stop) in enumerate(spans):
        ahead.extend([number] * (stop - len(ahead)))
    ahead.extend([len(spans)] * (len(owners) - len(ahead)))
    return Division(rank=rank, spans=tuple(spans), ahead=tuple(ahead))


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
