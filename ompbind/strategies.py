"""How the cores of a machine are divided among ranks: one function for each strategy, in one table.

A *unit* is what is never divided: the usable CPUs of one core (`crowd` is about more ranks than
cores). Units stand in a line, in the order in which one walks the machine, so that a domain
is a *span* of the line: (start, stop), stop excluded. A strategy gives every rank a span.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from ompbind.cpuset import CpuSet, count
from ompbind.errors import PlanError
from ompbind.record import Record
from ompbind.topology import Level, Machine

Span = tuple[int, int]


class Field(Record):
    """The line of units to divide; `levels` has the spans of the domains of each level, widest first.

    `divisions` are those of the levels that divide the line: one of single units adds nothing to the units.
    """

    units: tuple[CpuSet, ...]
    levels: tuple[tuple[Level, tuple[Span, ...]], ...]
    divisions: tuple[tuple[Span, ...], ...]

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
        (level, _spans(machine, level, units)) for level in machine.levels if level is not Level.CORE
    )
    divisions = (spans for _, spans in levels if any(stop - start > 1 for start, stop in spans))
    return Field(units=units, levels=levels, divisions=tuple(divisions))


def _spans(machine: Machine, level: Level, units: tuple[CpuSet, ...]) -> tuple[Span, ...]:
    owner = {cpu: domain.index for domain in machine.at(level) for cpu in domain.cpus}
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


def balanced(field: Field, ask: Ask) -> list[Span]:
    """Give every rank an equal share, cut at domain boundaries wherever equal shares allow it."""
    whole = (0, len(field.units))
    return _share(field, whole, ask.ranks, 0)


def _share(field: Field, span: Span, ranks: int, depth: int) -> list[Span]:
    """Cut a span into `ranks` runs whose lengths differ by at most one, looking from level `depth` on."""
    if ranks == 1 or depth == len(field.divisions):
        return _cut(span, ranks)
    children = within(field.divisions[depth], span)
    counts = _fit(children, ranks, (span[1] - span[0]) // ranks)
    if counts is None:
        children, counts = _group(children, ranks)
    return _in_each(children, counts, lambda child, mine: _share(field, child, mine, depth + 1))


def _in_each(
    spans: Sequence[Span], counts: Sequence[int], divide: Callable[[Span, int], list[Span]]
) -> list[Span]:
    """Divide each span among as many ranks as it has, one span after the other."""
    return [run for span, mine in zip(spans, counts, strict=True) if mine for run in divide(span, mine)]


def _group(children: list[Span], ranks: int) -> tuple[list[Span], list[int]]:
    """Join neighbouring children into spans that whole ranks fill, each as soon as one can be closed.

    Returns the spans and how many ranks fill each; the last one takes what is left.
    """
    start, end = children[0][0], children[-1][1]
    small = (end - start) // ranks
    groups: list[Span] = []
    counts: list[int] = []
    for _, stop in children[:-1]:
        left = ranks - sum(counts)
        fewest, most = -(-(stop - start) // (small + 1)), (stop - start) // small
        fits = [
            mine
            for mine in range(max(1, fewest), min(most, left - 1) + 1)
            if (left - mine) * small <= end - stop <= (left - mine) * (small + 1)
        ]
        if fits:
            even = left * (stop - start) / (end - start)
            groups.append((start, stop))
            counts.append(min(fits, key=lambda mine: abs(mine - even)))
            start = stop
    return [*groups, (start, end)], [*counts, ranks - sum(counts)]


def within(spans: tuple[Span, ...], outer: Span) -> list[Span]:
    """Return the spans inside `outer`, cut to it, with what no span covers as spans of their own."""
    pieces: list[Span] = []
    at = outer[0]
    for start, stop in spans:
        start, stop = max(start, outer[0]), min(stop, outer[1])
        if start >= stop:
            continue
        if at < start:
            pieces.append((at, start))
        pieces.append((start, stop))
        at = stop
    return [*pieces, (at, outer[1])] if at < outer[1] else pieces


def _fit(children: list[Span], ranks: int, small: int) -> list[int] | None:
    """Find how many ranks of `small` or `small + 1` units fill each child exactly, or None."""
    sizes = [stop - start for start, stop in children]
    counts = [-(-size // (small + 1)) for size in sizes]
    if any(least > size // small for least, size in zip(counts, sizes, strict=True)):
        return None
    for _ in range(ranks - sum(counts)):
        roomy = [i for i, size in enumerate(sizes) if (counts[i] + 1) * small <= size]
        if not roomy:
            return None
        counts[max(roomy, key=lambda i: (sizes[i] / (counts[i] or 0.5), -i))] += 1
    return counts if sum(counts) == ranks else None


def _cut(span: Span, ranks: int) -> list[Span]:
    """Cut a span into runs whose lengths differ by at most one, the longer ones spread evenly."""
    start, length = span[0], span[1] - span[0]
    marks = [start - (-i * length // ranks) for i in range(ranks + 1)]
    return list(pairwise(marks))


def compact(field: Field, ask: Ask) -> list[Span]:
    """Pack the ranks next to each other from the start of the machine; the rest stays idle."""
    size = _size(field, ask)
    return [(rank * size, (rank + 1) * size) for rank in range(ask.ranks)]


def spread(field: Field, ask: Ask) -> list[Span]:
    """Put the ranks as far from each other as the machine allows; what lies between stays idle."""
    return _scatter(field, (0, len(field.units)), Ask(ranks=ask.ranks, units=_size(field, ask)), 0)


def _size(field: Field, ask: Ask) -> int:
    """Return the units of every rank, by request or else the largest equal share."""
    size = ask.units or len(field.units) // ask.ranks
    if size * ask.ranks > len(field.units):
        cores = len(field.units)
        fewer = f"at most {count(cores // size, 'rank')}, or " if cores >= size else ""
        raise PlanError(
            f"{count(ask.ranks, 'rank')} of {count(size, 'core')} need {size * ask.ranks}, {cores} are free",
            hint=f"ask for {fewer}fewer threads with -t",
        )
    return size


def _scatter(field: Field, span: Span, ask: Ask, depth: int) -> list[Span]:
    size = ask.units or 1
    if depth == len(field.divisions):
        return [(start, start + size) for start, _ in _cut(span, ask.ranks)]
    children = within(field.divisions[depth], span)
    counts = _deal(ask.ranks, [(stop - start) // size for start, stop in children])
    if counts is None:
        return _scatter(field, span, ask, depth + 1)
    return _in_each(
        children, counts, lambda child, mine: _scatter(field, child, Ask(ranks=mine, units=size), depth + 1)
    )


def _deal(ranks: int, room: list[int]) -> list[int] | None:
    """Deal ranks one by one to whoever has fewest, never past its room; None when room runs out."""
    counts = [0] * len(room)
    for _ in range(ranks):
        open_ = [i for i in range(len(room)) if counts[i] < room[i]]
        if not open_:
            return None
        counts[min(open_, key=lambda i: (counts[i], i))] += 1
    return counts


def each(level: Level) -> "Strategy":
    """Make the strategy that gives every rank one domain of `level`, or an even share of one."""

    def one_domain(field: Field, ask: Ask) -> list[Span]:
        spans = field.spans(level)
        counts = _deal(ask.ranks, [stop - start for start, stop in spans])
        if counts is None:
            raise PlanError(
                f"{ask.ranks} ranks do not fit on {len(field.units)} cores",
                hint=f"ask for at most {len(field.units)} ranks",
            )
        return _in_each(spans, counts, lambda span, mine: _share(field, span, mine, 0))

    return one_domain


def check_strategy(field: Field, name: str) -> None:
    """Refuse a strategy that gives away domains of which the machine tells none; raises PlanError."""
    level = next((level for level, one in LEVEL_STRATEGIES.items() if one == name), None)
    if level is not None and not field.spans(level):
        known = [LEVEL_STRATEGIES[lv] for lv, _ in field.levels if lv in LEVEL_STRATEGIES]
        raise PlanError(
            f"this machine tells no {level} domains",
            hint=f"it can serve {', '.join(['balanced', 'compact', 'spread', 'cores', *known])}",
        )


def cores(field: Field, ask: Ask) -> list[Span]:
    """Give every rank one core, from the start of the machine."""
    return compact(field, Ask(ranks=ask.ranks, units=1))


def everything(field: Field, ask: Ask) -> list[Span]:
    """Give every rank everything: the only strategy that overlaps."""
    return [(0, len(field.units))] * ask.ranks


Strategy = Callable[[Field, Ask], list[Span]]

LEVEL_STRATEGIES: Mapping[Level, str] = {
    Level.NODE: "nodes",
    Level.PACKAGE: "packages",
    Level.L3: "l3",
    Level.L2: "l2",
    Level.BOOK: "books",
    Level.DRAWER: "drawers",
}
"""The strategies that give one domain to a rank, by the level of their domains."""

STRATEGIES: Mapping[str, Strategy] = {
    "balanced": balanced,
    "compact": compact,
    "spread": spread,
    **{name: each(level) for level, name in LEVEL_STRATEGIES.items()},
    "cores": cores,
    "all": everything,
}
"""Every strategy by its name on the command line."""
