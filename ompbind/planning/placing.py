"""Give ranks consecutive cores in topology order, across as few domain boundaries as possible.

The idea: the cost of a rank then depends only on its first and its last core, so that two small dynamic
programs find the best places. In equal shares of all cores, a state is (rank, how many ranks before it have
the larger share): together they are its first core. Where cores may stay idle, a state is (rank, first core),
and a rank begins at a boundary, or whole ranks after it. Large machines would have too many states, so only
places near the usual place of a rank are tried (`NEAR`).

    cores              0 1 2 3 4 5 6 7 8 | 9 10 11 12 13 14 15 16 17      two nodes
    4 equal shares     0 0 0 0 0 1 1 1 1 | 2  2  2  2  2  3  3  3  3
    3 ranks of 4       0 0 0 0 1 1 1 1   | 2  2  2  2

Equal shares may be better where each domain first has the whole ranks that fit, and other ranks get what is
left over:

    cores              0 1 2 | 3 4 5 6 | 7 8 9 | 10 11 12 13      caches
    7 equal shares     0 0 1 | 1 2 2 3 | 3 4 4 |  5  5  6  6      ranks 1 and 3 cross
    domains first      0 0 1 | 2 2 3 3 | 4 4 1 |  5  5  6  6      only rank 1 crosses

The cost is one number: how many ranks cross a boundary of each level, most important level first, then in how
many domains of each level they are.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate, islice
from operator import gt
from typing import TypeAlias

from ompbind.machine.model import KIND, Column, Level, Table
from ompbind.record import Record

Rows: TypeAlias = tuple[int, ...]  # cores, as rows of the table of a machine

PRIORITY = (Level.NODE, Level.PACKAGE, Level.L3, Level.L2, Level.DRAWER, Level.BOOK, Level.DIE, Level.CLUSTER)
"""The levels whose domain boundaries ranks should not cross, most important first."""

COLUMNS: tuple[Column, ...] = (*PRIORITY, KIND)
"""These levels, then the kinds of cores, which ranks should not mix."""

NEAR = 1 << 12
"""How many places are tried for all ranks together, on either side of the usual place of each rank."""


class Cores(Record):
    """The cores to divide: rows of the table of a machine, in topology order or that of requested NUMA nodes.

    `distances` has the distance of the memory of each core whose memory is remote.
    """

    table: Table
    rows: Rows
    distances: Mapping[int, int]

    def numbers(self, column: Column) -> list[int | None]:
        """Return for each core the number of its domain or kind, None for none."""
        numbers = self.table.column(column)
        return [numbers[row] for row in self.rows]

    def domains(self, level: Level) -> list[Rows]:
        """Return the cores of each domain of a level; none if the machine has no such level."""
        groups = self.group(self.numbers(level))
        groups.pop(None, None)
        return list(groups.values())

    def group(self, keys: Iterable[object]) -> dict[object, Rows]:
        """Return the cores by their keys, for the keys of all cores, in the order of their first cores."""
        found: dict[object, list[int]] = {}
        for row, key in zip(self.rows, keys, strict=True):
            found.setdefault(key, []).append(row)
        return {key: tuple(rows) for key, rows in found.items()}

    def take(self, rows: Rows) -> "Cores":
        """Return some of the cores."""
        return self.replace(rows=rows)

    def sort(self, shares: Iterable[Rows]) -> list[Rows]:
        """Return the cores of ranks in the order of their first cores."""
        position = {row: index for index, row in enumerate(self.rows)}
        return sorted(shares, key=lambda share: [position[row] for row in share])


def find_boundaries(numbers: Sequence[int | None]) -> list[int]:
    """Return the positions where another domain begins, for the numbers of the domains of all cores."""
    return [position for position in range(1, len(numbers)) if numbers[position] != numbers[position - 1]]


def measure_costs(cores: Cores, size: int, *, only_avoidable: bool = False) -> list[int]:
    """Return the cost of a rank of `size` cores for each position of its first core; lower is better.

    With `only_avoidable`, a boundary counts only if a domain beside it could hold the whole rank.
    """
    total, positions = len(cores.rows), range(len(cores.rows) - size + 1)
    crossed: list[list[int]] = []  # for each level and position, how many boundaries are inside the rank
    for column in COLUMNS:
        starts = find_boundaries(cores.numbers(column))
        if only_avoidable:
            sides = zip([0, *starts], starts, [*starts[1:], total], strict=False)
            starts = [start for left, start, right in sides if max(start - left, right - start) >= size]
        if starts:
            counted = set(starts)
            before = list(accumulate(position in counted for position in range(total)))
            crossed.append([before[first + size - 1] - before[first] for first in positions])
    costs = [0] * len(positions)
    for level in crossed:
        costs = [cost * (total + 1) + (number > 0) for cost, number in zip(costs, level, strict=True)]
    for level in crossed:
        costs = [cost * (total + 1) + number for cost, number in zip(costs, level, strict=True)]
    return costs


def count_domains(table: Table, shares: Collection[Sequence[int]]) -> list[list[int]]:
    """Return in how many domains each share has cores, for each level, most important level first."""
    columns = [table.column(column) for column in COLUMNS]
    return [[len({numbers[row] for row in share}) for share in shares] for numbers in columns]


def measure_shares(cores: Cores, shares: Sequence[Rows], compute: int | None = None) -> tuple[list[int], ...]:
    """Measure shares of ranks, most important number first; lower is better.

    The numbers are how many ranks have their first `compute` cores (None: all) in several domains, for each
    level; then in how many domains these cores are, and all cores, summed over all ranks.
    """
    counted = count_domains(cores.table, [share[:compute] for share in shares])
    crossing = [sum(domains > 1 for domains in ranks) for ranks in counted]
    return crossing, list(map(sum, counted)), list(map(sum, count_domains(cores.table, shares)))


def divide_equally(cores: Cores, ranks: int) -> list[Rows]:
    """Return an equal share of all cores for every rank: consecutive cores, unless filled domains are better.

    Domains are filled only if no rank then has cores in more domains than some rank of the other way.
    """
    in_order = _divide_in_order(cores, ranks)
    most = [max(used) for used in count_domains(cores.table, in_order)]
    split = [column for column, used in zip(COLUMNS, most, strict=True) if used > 1]
    filled = [_fill_domains(cores, ranks, column) for column in split]
    ways = [way for way in filled if not any(map(gt, map(max, count_domains(cores.table, way)), most))]
    best = min([in_order, *ways], key=lambda way: measure_shares(cores, way))
    return cores.sort(best)


def _fill_domains(cores: Cores, ranks: int, column: Column) -> list[Rows]:
    """Give each domain the whole ranks that fit; the others divide what is left of all domains."""
    small, larger = divmod(len(cores.rows), ranks)
    sizes = [small + 1] * larger + [small] * (ranks - larger)
    shares: list[Rows] = []
    rest: Rows = ()
    for rows in cores.group(cores.numbers(column)).values():
        while sizes and (size := next((size for size in (sizes[0], sizes[-1]) if size <= len(rows)), 0)):
            sizes.remove(size)
            shares.append(rows[:size])
            rows = rows[size:]
        rest += rows
    others = iter(rest)
    return [*shares, *(tuple(islice(others, size)) for size in sizes)]


def _divide_in_order(cores: Cores, ranks: int) -> list[Rows]:
    """Divide all cores in their order; larger shares come first among equally good ones."""
    small, larger = divmod(len(cores.rows), ranks)
    costs = [measure_costs(cores, size) for size in (small, small + 1)]
    near = max(1, NEAR // ranks)
    best = {larger: 0}  # the cost of all ranks from the next one on, by how many larger shares come before
    is_larger: list[dict[int, bool]] = []
    for rank in reversed(range(ranks)):
        usual = rank * larger // ranks
        following, best = best, {}
        is_larger.append({})
        for before in range(max(0, usual - near), min(rank, larger, usual + near) + 1):
            first = rank * small + before
            options = [
                (costs[more][first] + following[before + more], -more)
                for more in (1, 0)
                if before + more in following
            ]
            if options:
                best[before], more = min(options)
                is_larger[-1][before] = bool(more)
    shares, before = [], 0
    for rank, choices in enumerate(reversed(is_larger)):
        first = rank * small + before
        before += choices[before]
        shares.append(cores.rows[first : (rank + 1) * small + before])
    return shares


def place_equal(cores: Cores, ranks: int, size: int, *, apart: bool) -> list[Rows]:
    """Return `size` cores for every rank, packed from the start, or with `apart` as far apart as possible."""
    total = len(cores.rows)
    levels = [level for level in cores.table.levels if level is not Level.CORE]
    boundaries = [find_boundaries(cores.numbers(level)) for level in levels]
    kinds = find_boundaries(cores.numbers(KIND))
    costs = measure_costs(cores, size, only_avoidable=bool(kinds))
    aligned = {start % size for starts in ([0, total], kinds, *boundaries) for start in starts}
    firsts = [first for first in range(total - size + 1) if first % size in aligned]
    if not apart:
        cheapest, packed = min(costs[first] for first in firsts), [-size]
        for first in firsts:
            if costs[first] == cheapest and first >= packed[-1] + size:
                packed.append(first)
        if len(packed) > ranks:
            return [cores.rows[first : first + size] for first in packed[1 : ranks + 1]]
    chosen = _choose(costs, firsts, [[0, *starts] for starts in boundaries] if apart else [], ranks, size)
    return [cores.rows[first : first + size] for first in chosen]


def _choose(
    costs: Sequence[int], firsts: Sequence[int], levels: Sequence[Sequence[int]], ranks: int, size: int
) -> list[int]:
    """Choose the first core of every rank: the lowest costs, then the fewest neighbours in one domain.

    `levels` have the positions where domains begin, widest level first. Equally good ranks begin with a
    domain, and are evenly spaced; without levels they are packed from the start.
    """
    total = len(costs) + size - 1
    weights = list(accumulate([(ranks + 1) ** power for power in reversed(range(len(levels)))], initial=0))
    inside = ranks * total * total + 1  # more than all distances from evenly spaced places together
    shared = inside * (ranks * len(levels) + 1)
    scale = shared * (ranks * weights[-1] + 1)
    near = max(size, NEAR // ranks)
    # the rank before is in another domain of all levels, or in the same domain of the first levels
    limits_of = {first: [starts[bisect_right(starts, first) - 1] for starts in levels] for first in firsts}
    values = {
        first: costs[first] * scale + inside * sum(limit < first for limit in limits)
        for first, limits in limits_of.items()
    }
    ends, best = [0], [(0, 0, 0)]  # of the rank before: its possible ends, the best choice up to each of them
    steps: list[list[tuple[int, int, int]]] = []  # for each rank, these choices: (value, first core, parent)
    for rank in range(ranks):
        usual, rated = rank * total // ranks, []
        for first in firsts[bisect_left(firsts, usual - near) : bisect_right(firsts, usual + near)]:
            options = [
                (best[parent][0] + weight * shared, parent)
                for limit, weight in zip((*limits_of[first], first), weights, strict=True)
                if (parent := bisect_right(ends, limit) - 1) >= 0
            ]
            if options:
                value, parent = min(options)
                value += values[first] + ((first - usual) ** 2 if levels else first)
                rated.append((value, first, parent))
        ends, best = [first + size for _, first, _ in rated], list(accumulate(rated, min))
        steps.append(best)
    chosen, parent = [], len(best) - 1
    for step in reversed(steps):
        _, first, parent = step[parent]
        chosen.append(first)
    return chosen[::-1]
